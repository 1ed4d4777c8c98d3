"""JSON from Kafka through a function to Kafka, beside a plain loop of the same client on the same broker.

The broker is tansu, which this project has not written, in memory, in a process of its own on the same two cores. Messages have some 100
bytes and one partition. Ours is a job of one task in this process, with a checkpoint every second: KafkaSource with
`JsonRowDeserializationSchema`, a function on Rows, and KafkaSink (at least once) with `JsonRowSerializationSchema`. The function is one that
runs on columns, or one with a `try`, which is called for each Row; the second also without the list of tags. Floor: a loop that
consumes up to 1,000 messages, has `json.loads`, the function on dicts and `json.dumps` for each, and produces. Both until the broker has
acknowledged the last message. CPU seconds are those of this process, without the broker. `--events`: messages, default 200,000.
"""

import json
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.figures import Figure
from penstock.common import Configuration, Row, Types, WatermarkStrategy
from penstock.common.typeinfo import RowTypeInfo
from penstock.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaTopicPartition,
)
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from penstock.testing import MiniCluster
from tests.tools.brokers import tansu

ABOUT = __doc__.split("\n\n", maxsplit=1)[1].strip()
MESSAGES = 200_000
AT_ONCE = 1000
IN = KafkaTopicPartition("in", 0)
WAIT_S = 60
NAMES = ["id", "name", "price", "tags"]
KINDS = [Types.LONG(), Types.STRING(), Types.DOUBLE(), Types.OBJECT_ARRAY(Types.STRING())]
ROW, UNTAGGED = Types.ROW_NAMED(NAMES, KINDS), Types.ROW_NAMED(NAMES[:-1], KINDS[:-1])


def message(number: int) -> bytes:
    value = {"id": number, "name": f"name {number % 1000}", "price": number * 0.25}
    return json.dumps(value | {"tags": ["new", "cheap", "in stock"]}).encode()


def dearer(row: Row) -> Row:
    return Row(id=row.id, name=row.name, price=row.price * 1.2, tags=row.tags)


def dearer_if_it_can(row: Row) -> Row:
    try:
        return Row(id=row.id, name=row.name, price=row.price * 1.2, tags=row.tags)
    except TypeError:
        return row


def untagged(row: Row) -> Row:
    try:
        return Row(id=row.id, name=row.name, price=row.price * 1.2)
    except TypeError:
        return row


class Topics:
    def __init__(self, servers: str, messages: int) -> None:
        self.servers = servers
        self.messages = messages
        tansu.create({"bootstrap.servers": servers}, "in")
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
        for number in range(messages):
            producer.produce("in", message(number), partition=0)
            if not number % AT_ONCE:
                producer.flush(WAIT_S)
        producer.flush(WAIT_S)

    def job(self, topic: str, function: Callable[[Row], Row], kind: RowTypeInfo) -> None:
        env = StreamExecutionEnvironment.get_execution_environment(Configuration())
        env.use_executor(MiniCluster(parallelism=1).executor()).set_parallelism(1)
        env.enable_checkpointing(1000)
        schema = JsonRowDeserializationSchema.builder().type_info(kind).build()
        source = (
            KafkaSource
            .builder()
            .set_bootstrap_servers(self.servers)
            .set_topics("in")
            .set_group_id("bench")
            .set_starting_offsets(KafkaOffsetsInitializer.earliest())
            .set_bounded(KafkaOffsetsInitializer.offsets({IN: self.messages}))
            .set_value_only_deserializer(schema)
            .build()
        )
        written = JsonRowSerializationSchema.builder().with_type_info(kind).build()
        serializer = KafkaRecordSerializationSchema.builder().set_topic(topic)
        serializer.set_value_serialization_schema(written)
        builder = KafkaSink.builder().set_bootstrap_servers(self.servers)
        builder.set_record_serializer(serializer.build())
        sink = builder.set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE).build()
        rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "in")
        rows.map(function, kind).sink_to(sink)
        env.execute("topic to topic")

    def loop(self, topic: str) -> None:
        settings = {"bootstrap.servers": self.servers, "group.id": "loop"}
        consumer = Consumer(settings | {"enable.auto.commit": False})
        consumer.assign([TopicPartition("in", 0, 0)])
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 20})
        done = 0
        while done < self.messages:
            for found in consumer.consume(AT_ONCE, 1.0):
                value = json.loads(found.value())
                value["price"] *= 1.2
                while True:
                    try:
                        producer.produce(topic, json.dumps(value).encode())
                        break
                    except BufferError:
                        producer.poll(0.01)
                done += 1
            producer.poll(0)
        producer.flush(WAIT_S)
        consumer.close()

    def rates(self, copy: Callable[[str], None], topic: str) -> tuple[float, float]:
        """Messages in a second, and in a CPU second of this process. What was written is counted."""
        tansu.create({"bootstrap.servers": self.servers}, topic)
        began, used = time.perf_counter(), time.process_time()
        copy(topic)
        spent = time.perf_counter() - began, time.process_time() - used
        if (found := self._count(topic)) != self.messages:
            raise SystemExit(f"kafka: {found} messages came out, expected {self.messages}")
        return self.messages / spent[0], self.messages / spent[1]

    def _count(self, topic: str) -> int:
        """By reading: what tansu says of a topic's end is behind for a moment."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "count"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        count = 0
        while count < self.messages and (found := consumer.consume(AT_ONCE, WAIT_S)):
            count += sum(one.error() is None for one in found)
        count += sum(one.error() is None for one in consumer.consume(1, 0.1))  # no more may come
        consumer.close()
        return count


JOBS = {
    "rows": (dearer, ROW),
    "rows, called": (dearer_if_it_can, ROW),
    "rows without a list, called": (untagged, UNTAGGED),
}


def measure(messages: int | None = None, runs: int = 3) -> list[Figure]:
    """`messages`: of each run."""
    messages = messages or MESSAGES
    with tansu.running_tansu() as server:
        topics = Topics(f"127.0.0.1:{server.port}", messages)
        return [one for name in JOBS for one in figures(topics, name, runs)]


def figures(topics: Topics, name: str, runs: int) -> list[Figure]:
    """Rates of one job and of the loop, in turns."""
    function, kind = JOBS[name]

    def job(topic: str) -> None:
        topics.job(topic, function, kind)

    number = list(JOBS).index(name)
    topics.rates(job, f"warm-{number}")
    both: list[tuple[Any, Any]] = []
    for run in range(runs):
        topic = f"{number}-{run}"
        both.append((topics.rates(job, f"job-{topic}"), topics.rates(topics.loop, f"loop-{topic}")))
    made = []
    for place, unit in enumerate(("messages/s", "messages/CPU second")):
        values = [ours[place] for ours, _ in both]
        floors = [floor[place] for _, floor in both]
        settings = {"messages": topics.messages}
        made.append(Figure(f"kafka JSON to JSON, {name}", values, unit, floors, settings))
    return made
