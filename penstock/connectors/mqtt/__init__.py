"""MQTT 5 as a source and as a sink. Needs paho-mqtt (`penstock[mqtt]`) where a job is made and where it runs."""

from penstock.connectors.mqtt.sink import MqttSink
from penstock.connectors.mqtt.source import MqttSource

__all__ = ["MqttSink", "MqttSource"]
