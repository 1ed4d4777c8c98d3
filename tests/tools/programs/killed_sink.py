"""A driver that writes numbers to a sink: `python -m tests.tools.programs.killed_sink FOLDER KIND PLACE LEASE`.

Another process of the same program takes the job over when this one is killed. The job goes on when all numbers are written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.common import Configuration, Duration, Encoder, Row, Types, WatermarkStrategy
from penstock.common.serialization import SimpleStringSchema
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.file_system import FileSink
from penstock.connectors.http import HttpSink
from penstock.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink
from penstock.connectors.lakehouse import DeltaSink, IcebergSink
from penstock.connectors.nats import JetStreamSink
from penstock.connectors.pulsar import PulsarSink
from penstock.connectors.redis import RedisStreamSink
from penstock.connectors.sql_sink import SqlSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DataGeneratorSource, DeliveryGuarantee
from penstock.datastream.functions import MapFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor

COUNT = 3000
KEYS = 97
ONCE = DeliveryGuarantee.EXACTLY_ONCE
NUMBERS = Types.ROW_NAMED(["id", "n"], [Types.LONG(), Types.LONG()])
PARTS = ("a b", "x/y=%", "ü", None)
COUNTED = Types.ROW_NAMED(
    ["part", "id", "n", "seen"], [Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG()]
)
SETTINGS = {
    "high-availability.type": "FILE",
    "high-availability.cluster-id": "killed",
    "penstock.high-availability.renew-interval": "300 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


@dataclass(frozen=True)
class Kind:
    """`sink`: to a place. `record`: of a number, as `type_info` says; a function of its key, too. `rate`: numbers in a second. `interval`: of checkpoints."""

    sink: Callable[[str], Any]
    record: Callable[[int], Any] | MapFunction = str
    type_info: TypeInformation = Types.STRING()
    rate: int = 1500
    interval: str = "100 ms"


def row(number: int) -> Row:
    return Row(id=number % KEYS, n=number)


class Counting(MapFunction):
    """`seen`: how many numbers of its key there were, with this one. `part`: see `PARTS`."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def map(self, value: int) -> Row:
        seen = (self._seen.value() or 0) + 1
        self._seen.update(seen)
        return Row(part=PARTS[value % len(PARTS)], id=value % KEYS, n=value, seen=seen)


def table(*keys: str) -> Kind:
    def sink(place: str) -> Any:
        builder = SqlSink.builder().set_url(place).set_table("numbers")
        if keys:
            builder.set_key_columns(keys)
        return builder.set_delivery_guarantee(ONCE).build()

    return Kind(sink, row, NUMBERS)


def kafka(place: str) -> Any:
    serializer = KafkaRecordSerializationSchema.builder().set_topic("out")
    serializer.set_value_serialization_schema(SimpleStringSchema())
    builder = KafkaSink.builder().set_bootstrap_servers(place)
    builder.set_record_serializer(serializer.build()).set_transactional_id_prefix("killed")
    return builder.set_delivery_guarantee(ONCE).build()


def pulsar(place: str) -> Any:
    builder = PulsarSink.builder().set_service_url(place).set_topics("out")
    builder.set_serialization_schema(SimpleStringSchema())
    return builder.set_delivery_guarantee(ONCE).build()


def redis(place: str) -> Any:
    builder = RedisStreamSink.builder().set_url(place).set_stream("out")
    builder.set_value_serializer(SimpleStringSchema()).set_delivery_guarantee(ONCE)
    return builder.build()


def nats(place: str) -> Any:
    builder = JetStreamSink.builder().set_url(place).set_subject("out.x")
    return builder.set_serializer(SimpleStringSchema()).set_delivery_guarantee(ONCE).build()


def http(place: str) -> Any:
    builder = HttpSink.builder().set_url(place).set_retries(100).set_body_form("lines")
    builder.set_serializer(SimpleStringSchema()).set_timeout(Duration.of_seconds(1))
    return builder.set_delivery_guarantee(ONCE).build()


def iceberg(place: str) -> Any:
    builder = IcebergSink.for_row_data("shop.out", NUMBERS).with_catalog("lake", json.loads(place))
    return builder.create_table_if_missing().build()


def delta_in_parts(place: str) -> Any:
    return DeltaSink.for_row_data(place, COUNTED).with_partition_columns("part").build()


def iceberg_in_parts(place: str) -> Any:
    builder = IcebergSink.for_row_data("shop.out", COUNTED).with_catalog("lake", json.loads(place))
    return builder.create_table_if_missing().with_partitioning("part", "bucket(2, id)").build()


KINDS = {
    "table": table(),
    "table with keys": table("id"),
    "kafka": Kind(kafka),
    "pulsar": Kind(pulsar),
    "redis": Kind(redis),
    "nats": Kind(nats),
    "http": Kind(http),
    "files": Kind(
        lambda place: FileSink.for_row_format(place, Encoder.simple_string_encoder()).build()
    ),
    "delta": Kind(lambda place: DeltaSink.for_row_data(place, NUMBERS).build(), row, NUMBERS),
    "iceberg": Kind(iceberg, row, NUMBERS),
    "delta in parts": Kind(delta_in_parts, Counting(), COUNTED, 500, "300 ms"),
    "iceberg in parts": Kind(iceberg_in_parts, Counting(), COUNTED, 500, "300 ms"),
}


def main(folder: str, kind: str, place: str, lease: str) -> None:
    chosen = KINDS[kind]
    configuration = Configuration()
    for key, value in SETTINGS.items():
        configuration.set_string(key, value)
    configuration.set_string("execution.checkpointing.interval", chosen.interval)
    configuration.set_string("penstock.high-availability.lease-duration", lease)
    configuration.set_string("high-availability.storageDir", f"{folder}/ha")
    configuration.set_string("execution.checkpointing.dir", f"{folder}/checkpoints")
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    env.add_python_file(str(Path(__file__).parents[2]))
    source = DataGeneratorSource(lambda index: index, count=10**9, rate_per_second=chosen.rate)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    # The numbers of a key stay in order.
    first = numbers.set_parallelism(1).filter(lambda number: number < COUNT).set_parallelism(1)
    keyed = first.key_by(lambda number: number % KEYS, Types.LONG())
    keyed.map(chosen.record, chosen.type_info).sink_to(chosen.sink(place)).name("out")
    env.execute("killed")


if __name__ == "__main__":
    main(*sys.argv[1:])
