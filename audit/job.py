"""The job that is audited: keyed state, timers, windows, a two-input function, an interval join, a repartition; files and SQL.

a, b -> by key, both -> chain      (files)    each record once, with its key's version and running total
                     -> milestones (SQL)      every twentieth version of a key
a    -> by key, timers -> timers   (files)    count and total of each key and slot
a    -> rebalance -> by key, windows -> windows (SQL)
a, b -> by key, interval join -> pairs (SQL)
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from audit.checks import MILESTONE, MILESTONES, PAIRS, SLOTS
from audit.event_log import B_FIRST, DISORDER_MS, Plan
from audit.expected import PAIR_MS, SLOT_MS, WINDOW_MS
from audit.log_source import LogSource
from penstock.common import Duration, Encoder, Time, Types, WatermarkStrategy
from penstock.connectors.file_system import BucketAssigner, FileSink
from penstock.connectors.sql_sink import SqlSink
from penstock.datastream import (
    AggregateFunction,
    DataStream,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.data_stream.joins import ProcessJoinFunction
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows

DRIFT_MS = 500
ALIGN_EVERY_MS = 100
TABLES = {"windows": SLOTS, "pairs": PAIRS, "milestones": MILESTONES}


class Chain(KeyedCoProcessFunction):
    """Gives each record of a key the next version and the total so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("chain", Types.TUPLE([Types.LONG(), Types.LONG()]))
        self._chain = runtime_context.get_state(descriptor)

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        source, sequence, key, amount = value
        version, total = self._chain.value() or (0, 0)
        version, total = version + 1, total + amount
        self._chain.update((version, total))
        yield key, version, source, sequence, total

    process_element2 = process_element1


class Slots(KeyedProcessFunction):
    """Counts and totals of slots of time; a timer tells each when it is over."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = MapStateDescriptor(
            "slots", Types.LONG(), Types.TUPLE([Types.LONG(), Types.LONG()])
        )
        self._slots = runtime_context.get_map_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        end = (ctx.timestamp() // SLOT_MS + 1) * SLOT_MS
        count, total = self._slots.get(end) or (0, 0)
        self._slots.put(end, (count + 1, total + value[3]))
        ctx.timer_service().register_event_time_timer(end)
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        count, total = self._slots.get(timestamp)
        self._slots.remove(timestamp)
        yield ctx.get_current_key(), timestamp, count, total


class CountAndTotal(AggregateFunction):
    """Of the values of a window."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value[3]

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class WithEnd(ProcessWindowFunction):
    """(key, end of the window, count, total)."""

    def process(
        self, key: int, context: ProcessWindowFunction.Context, elements: Iterable[Any]
    ) -> Iterable[Any]:
        for count, total in elements:
            yield key, context.window().end, count, total


class Pair(ProcessJoinFunction):
    """Which two records met."""

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left[0], left[1], right[0], right[1]


def key_of(record: Any) -> int:
    return int(record[2])


def milestone_of(row: Any) -> Any:
    return row[0], row[1], row[4]


def line_of(row: Any) -> str:
    return ",".join(map(str, row))


def is_milestone(row: Any) -> bool:
    return bool(row[1] % MILESTONE == 0)


def itself(record: Any) -> Any:
    return record


def build(env: StreamExecutionEnvironment, folder: str, url: str, plan: Plan) -> None:
    """The whole program. `url`: of a database that has the tables of `create_tables`."""
    # What is behind is caught up at full speed, and a source ahead of the others would fill their windows and buffers.
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(DISORDER_MS)
    ).with_watermark_alignment(
        "all", Duration.of_millis(DRIFT_MS), Duration.of_millis(ALIGN_EVERY_MS)
    )
    numbers = plan.sources()
    a_source = LogSource(folder, [one for one in numbers if one < B_FIRST])
    b_source = LogSource(folder, [one for one in numbers if one >= B_FIRST])
    a = env.from_source(a_source, strategy, "a").uid("a")
    b = env.from_source(b_source, strategy, "b").uid("b")
    integer = Types.INT()
    chain = a.connect(b).key_by(key_of, key_of, integer).process(Chain()).uid("chain")
    _to_files(chain, folder, "chain")
    _to_table(chain.filter(is_milestone).map(milestone_of), url, "milestones")
    slots = a.key_by(key_of, integer).process(Slots()).uid("timers")
    _to_files(slots, folder, "timers")
    windows = (
        a
        .rebalance()
        .map(itself)
        .uid("rebalanced")
        .key_by(key_of, integer)
        .window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS)))
        .aggregate(CountAndTotal(), WithEnd())
        .uid("windows")
    )
    _to_table(windows, url, "windows")
    pairs = (
        a
        .key_by(key_of, integer)
        .interval_join(b.key_by(key_of, integer))
        .between(Duration.of_millis(-PAIR_MS), Duration.of_millis(PAIR_MS))
        .process(Pair())
        .uid("pairs")
    )
    _to_table(pairs, url, "pairs")


def _to_files(stream: DataStream, folder: str, name: str) -> None:
    builder = FileSink.for_row_format(
        str(Path(folder) / "out" / name), Encoder.simple_string_encoder()
    )
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    lines = stream.map(line_of, Types.STRING()).uid(f"{name} lines")
    lines.sink_to(builder.build()).uid(f"{name} files").name(f"{name} files")


def _to_table(stream: DataStream, url: str, name: str) -> None:
    sink = SqlSink.builder().set_url(url).set_table(name).set_columns(TABLES[name]).build()
    stream.sink_to(sink).uid(f"{name} table").name(f"{name} table")


def create_tables(url: str) -> None:
    """Empty ones, with a number for each row."""
    import sqlalchemy as sa

    engine = sa.create_engine(url, poolclass=sa.NullPool)
    metadata = sa.MetaData()
    # In SQLite only a column of exactly this type counts up.
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    for name, columns in TABLES.items():
        sa.Table(
            name,
            metadata,
            sa.Column("id", number, primary_key=True, autoincrement=True),
            *[sa.Column(column, sa.BigInteger, nullable=False) for column in columns],
            sqlite_autoincrement=True,
        )
    if url.startswith("sqlite"):
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
    metadata.create_all(engine)
