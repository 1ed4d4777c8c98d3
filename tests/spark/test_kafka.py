"""Kafka from the processes of a real Spark: read and written by TaskManagers, committed once."""

import pytest

from penstock.common import WatermarkStrategy
from penstock.datastream.connectors import DeliveryGuarantee
from tests.spark.programs import environment
from tests.tools.brokers.apache_kafka import running_kafka
from tests.tools.brokers.kafka_topics import bounded, produce, sink_builder, texts
from tests.tools.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.server]


@pytest.mark.usefixtures("spark")
def test_records_go_from_topic_to_topic_once(tmp_path):
    with running_kafka() as broker:
        broker.create("in", 2)
        broker.create("out", 2)
        for partition in range(2):
            produce(broker, "in", *[f"{partition}:{n}" for n in range(500)], partition=partition)
        settings = {
            "execution.checkpointing.interval": "200 ms",
            "execution.checkpointing.dir": str(tmp_path),
        }
        env = environment(2, **settings)
        source = bounded(broker.servers, "in").set_group_id("g").build()
        sink = sink_builder(broker.servers, "out", DeliveryGuarantee.EXACTLY_ONCE).build()
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "in")
        stream.map(lambda text: text).sink_to(sink)
        env.execute("copy")
        wanted = sorted(f"{partition}:{n}" for partition in range(2) for n in range(500))
        assert sorted(texts(broker.servers, "out", range(2))) == wanted
        wait_until(
            lambda: [broker.offset("g", "in", one) for one in range(2)] == [500, 500],
            "what was read is not committed",
        )
