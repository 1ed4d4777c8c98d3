"""A keyed subtask in a process of its own, with its peak memory: python -m tests.tools.programs.spooled_task KIND MB BUDGET_MB

Prints JSON: the process before the task (`base`), the most that it came to (`peak`), both in MB; rows and keys that came out; the rows that went
in. The input is made record by record, as Spark gives it.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.common import Time, Types
from penstock.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.columns import col, count
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.engine.compiler.job_graph_builder import build_job_graph
from penstock.engine.hosting.shipping.pickling import serialize
from penstock.engine.hosting.spark.batch.batch_task import BatchTask
from penstock.engine.hosting.spark.batch.plan import Orders, StageSettings
from penstock.engine.hosting.spark.batch.shuffle_records import RecordBuilder
from penstock.engine.model.ids import JobId
from penstock.engine.runtime.batch.graph import in_batch
from penstock.engine.runtime.elements import ColumnBatch, RowBatch
from tests.tools.hosting.fake_executor import FakeExecutor

JOB = JobId("c" * 32)
ROWS = 8192
HOT = -1
MANY, FEW = 1 << 40, 10_000
TEXT = "x" * 250
COLUMNS = Types.ROW_NAMED(["key", "text"], [Types.LONG(), Types.STRING()])


class Counted(KeyedProcessFunction):
    """How many records each key has, told at the end, and that they come in the order of time."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, value, ctx):
        assert (self.last.value() or 0) <= ctx.timestamp()
        self.last.update(ctx.timestamp())
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(1 << 60)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), self.count.value()


class Count(AggregateFunction):
    def create_accumulator(self):
        return (0, 0)

    def add(self, value, accumulator):
        return value[0], accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, one, other):
        return one[0], one[1] + other[1]


@dataclass
class Kind:
    """`keys`: among so many the rows are spread. `hot`: share of one key."""

    keys: int = FEW
    hot: float = 0.5
    is_timed: bool = True
    is_columnar: bool = False
    rows: list = field(default_factory=list)
    text: str = TEXT


KINDS = {
    "process": Kind(),
    "window": Kind(),
    "columns": Kind(is_columnar=True),
    "many": Kind(keys=MANY, hot=0.0, is_timed=False, text=""),
}


def program(name, stream):
    if name == "columns":
        window = TumblingEventTimeWindows.of(Time.milliseconds(1 << 20))
        counted = stream.map_batches(lambda batch: batch, COLUMNS).key_by(col("key")).window(window)
        return counted.aggregate(count().alias("n"))
    keyed = stream.key_by(lambda value: value[0])
    if name == "process":
        return keyed.process(Counted())
    if name == "window":
        window = TumblingEventTimeWindows.of(Time.milliseconds(1 << 20))
        return keyed.window(window).aggregate(Count())
    return keyed.reduce(lambda one, other: (one[0], one[1] + other[1]))


def orders(name, memory):
    executor = FakeExecutor()
    env = StreamExecutionEnvironment.get_execution_environment().use_executor(executor)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH).set_parallelism(1)
    stream = (
        env
        .from_collection([(0, "")])
        .rebalance()
        .map(lambda value: value, COLUMNS if name == "columns" else None)
    )
    program(name, stream).print()
    env.execute(name)
    graph = build_job_graph(in_batch(executor.graph, is_combining=False), JOB, serialize)
    vertex = list(graph.vertices.values())[-1]
    settings = StageSettings(memory=memory)
    return Orders(graph.blobs[vertex.chain_blob], name, name, JOB, 1, 128, {}, 0, settings=settings)


def batches(kind):
    random = np.random.default_rng(1)
    while True:
        keys = random.integers(0, kind.keys, ROWS)
        keys[: int(ROWS * kind.hot)] = HOT
        times = random.integers(1, 1 << 20, ROWS) if kind.is_timed else None
        texts = [f"{key}{kind.text}" for key in keys.tolist()]
        if kind.is_columnar:
            yield ColumnBatch(pa.record_batch({"key": keys, "text": texts}), times)
        else:
            second = [1] * ROWS if kind.keys == MANY else texts
            yield RowBatch(list(zip(keys.tolist(), second, strict=True)), times)


def records(kind, size):
    """Until `size` bytes are there; `kind.rows` counts."""
    builder, made = RecordBuilder(0), 0
    for batch in batches(kind):
        kind.rows.append(len(batch))
        record = builder.add(batch)
        if record is not None:
            made += len(record)
            yield record
        if made >= size:
            break
    record = builder.finish()
    if record is not None:
        yield record


def run(name, size, memory):
    """Rows that came out."""
    kind = KINDS[name]
    kind.rows.clear()
    task = BatchTask(orders(name, memory), 0, 0, records(kind, size))
    for _ in task.run():
        pass
    report = task.report().io
    assert report.records_in == sum(kind.rows)
    return report.records_out


def memory_mb(name):
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(text.split(f"{name}:")[1].split()[0]) / 1024


def main():
    name, size, budget = sys.argv[1], int(sys.argv[2]) << 20, int(sys.argv[3]) << 20
    run(name, 1 << 20, 1 << 17)  # everything is imported
    base = memory_mb("VmRSS")
    out = run(name, size, budget)
    peak = memory_mb("VmHWM")
    rows = sum(KINDS[name].rows)
    print(json.dumps({"base": base, "peak": peak, "in": rows, "out": out}))


if __name__ == "__main__":
    main()
