"""The program whose savepoints and whose entry of high availability an earlier release wrote (see `README.md` beside it).

It has an operator for each kind of state that names classes of ours. Run as a script it writes the fixtures, with paths that are
relative to the working directory.

    python program.py expected   what the program writes when nothing disturbs it: expected.txt
    python program.py savepoint  a savepoint in the middle: savepoint/, and what was committed before: out/
    python program.py ha         the entry of a driver that died in the middle: ha/, and what was committed before: out/
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from penstock.common import Configuration, Encoder, Time, Types, WatermarkStrategy
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    BroadcastProcessFunction,
    KeyedProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors import DataGeneratorSource
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink
from penstock.datastream.functions import AggregateFunction
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

COUNT = 300
RATE = 100
KEYS = 4
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
HA = {
    "high-availability.type": "FILE",
    "high-availability.storageDir": "ha",
    "high-availability.cluster-id": "former",
    "penstock.high-availability.lease-duration": "2000 ms",
    "penstock.high-availability.renew-interval": "100 ms",
}


def same(value):
    return value


def key_of(value):
    return value % KEYS


def add(a, b):
    return a + b


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / max(1, accumulator[1])

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


class AllOf(ProcessWindowFunction):
    def process(self, key, context, elements):
        seen = context.global_state().get_state(ValueStateDescriptor("seen", Types.LONG()))
        seen.update((seen.value() or 0) + 1)
        yield f"all {key} {context.window().start} {sorted(elements)} {seen.value()}"


class Kept(KeyedProcessFunction):
    """Every kind of keyed state, and timers."""

    def open(self, runtime_context):
        self.value = runtime_context.get_state(ValueStateDescriptor("value", Types.LONG()))
        self.pickled = runtime_context.get_state(
            ValueStateDescriptor("pickled", Types.PICKLED_BYTE_ARRAY())
        )
        self.list = runtime_context.get_list_state(ListStateDescriptor("list", Types.LONG()))
        self.map = runtime_context.get_map_state(
            MapStateDescriptor("map", Types.LONG(), Types.STRING())
        )
        self.sum = runtime_context.get_reducing_state(
            ReducingStateDescriptor("sum", add, Types.LONG())
        )
        self.mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), Types.PICKLED_BYTE_ARRAY())
        )

    def process_element(self, value, ctx):
        self.value.update(max(value, self.value.value() or 0))
        low = (self.pickled.value() or {"low": value})["low"]
        self.pickled.update({"low": min(value, low)})
        self.list.add(value)
        self.map.put(value % 7, str(value))
        self.sum.add(value)
        self.mean.add(value)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() // 50 * 50 + 50)

    def on_timer(self, timestamp, ctx):
        kept = sorted(self.list.get())
        self.list.update([value for value in kept if value >= timestamp])
        due = [value for value in kept if value < timestamp]
        yield f"kept {ctx.get_current_key()} {timestamp} {due}"
        if timestamp >= COUNT:
            yield (
                f"end {ctx.get_current_key()} {self.value.value()} {self.pickled.value()} "
                f"{sorted(self.map.items())} {self.sum.get()} {self.mean.get()}"
            )


class Ruled(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        if value >= COUNT - 20:  # by then the rules are there, in whatever order they came
            yield f"ruled {value} {sorted(ctx.get_broadcast_state(RULES).items())}"

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(f"rule {value}", value)


class Pairs(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield f"pair {left} {right}"


class Doubled(AsyncFunction):
    async def async_invoke(self, value):
        return [f"doubled {value * 2}"]


def build(env) -> None:
    """Every operator has a uid, so that any release finds its state."""
    watermarks = WatermarkStrategy.for_monotonous_timestamps()
    source = DataGeneratorSource(
        same, COUNT, RATE, type_info=Types.LONG(), timestamp=same, batch_size=5
    )
    numbers = env.from_source(source, watermarks, "numbers").uid("numbers")
    keyed = numbers.key_by(key_of, Types.LONG())
    tumbling = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(40)))
    sliding = keyed.window(SlidingEventTimeWindows.of(Time.milliseconds(60), Time.milliseconds(30)))
    session = numbers.filter(lambda v: v % 50 < 30).uid("bursts").key_by(key_of, Types.LONG())
    session = session.window(EventTimeSessionWindows.with_gap(Time.milliseconds(10)))
    rules = env.from_collection([1, 2, 3], Types.LONG()).uid("rules").broadcast(RULES)
    evens = numbers.filter(lambda v: v % 10 == 0).uid("evens").key_by(lambda v: 1, Types.LONG())
    odds = numbers.filter(lambda v: v % 10 == 5).uid("fives").key_by(lambda v: 1, Types.LONG())
    joined = evens.interval_join(odds).between(Time.milliseconds(-30), Time.milliseconds(30))
    doubled = AsyncDataStream.unordered_wait(
        numbers, Doubled(), Time.seconds(30), 10, Types.STRING()
    )
    text = Types.STRING()
    parts = [
        tumbling.process(AllOf(), text).uid("tumbling"),
        sliding.reduce(add).uid("sliding").map(lambda v: f"sliding {v}", text).uid("sliding text"),
        session
        .aggregate(Mean(), output_type=Types.DOUBLE())
        .uid("session")
        .map(lambda v: f"session {v}", text)
        .uid("session text"),
        keyed
        .count_window(10)
        .reduce(add)
        .uid("counted")
        .map(lambda _: "counted", text)
        .uid("counted text"),
        keyed.process(Kept(), text).uid("kept"),
        numbers.connect(rules).process(Ruled(), text).uid("ruled"),
        joined.process(Pairs(), text).uid("pairs"),
        doubled.uid("doubled"),
    ]
    sink = (
        FileSink
        .for_row_format("out", Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )
    parts[0].union(*parts[1:]).sink_to(sink).uid("out")


def environment(settings: dict[str, str], executor) -> StreamExecutionEnvironment:
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    env.set_max_parallelism(8)
    return env.use_executor(executor)


def written(folder: Path) -> list[str]:
    """All committed lines below it, sorted."""
    files = [p for p in folder.rglob("*") if p.is_file() and not p.name.startswith((".", "_"))]
    return sorted(line for path in files for line in path.read_text().splitlines())


def _main(what: str, backend: str = "hashmap") -> None:
    from penstock.testing import MiniCluster

    settings = {"state.backend.type": backend}
    if what == "ha":
        settings |= HA | {
            "execution.checkpointing.interval": "200 ms",
            "execution.checkpointing.dir": "checkpoints",
        }
    env = environment(settings, MiniCluster(parallelism=2).executor())
    build(env)
    if what == "expected":
        env.execute("former")
        Path("expected.txt").write_text("\n".join(written(Path("out"))) + "\n")
        return
    client = env.execute_async("former")
    # Any moment in the middle will do: a person looks at the fixture that comes of it.
    time.sleep(1.6)
    if what == "savepoint":
        print(client.stop_with_savepoint(False, "savepoint").result())
    os._exit(0)  # as a driver that is killed


if __name__ == "__main__":
    _main(*sys.argv[1:])
