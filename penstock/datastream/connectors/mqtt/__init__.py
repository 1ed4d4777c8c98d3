"""MQTT 5 as a source and as a sink. Needs paho-mqtt (`penstock[mqtt]`) where a job is made and where it runs."""

from penstock.datastream.connectors.mqtt.sink import MqttSink
from penstock.datastream.connectors.mqtt.source import MqttSource

__all__ = ["MqttSink", "MqttSource"]
