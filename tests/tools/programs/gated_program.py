"""A program for tests of checkpoints: numbers as far as the test lets them come, counted by key, to the driver."""

from collections import Counter

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.api.base import (
    Boundedness,
    PolledSplitReader,
    QueueEnumerator,
    ReaderStatus,
    Source,
)
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.engine.runtime.elements import RowBatch
from tests.tools.hosting.fake_executor import FakeExecutor

STEPS = 40
ROWS = 5
KEYS = 3
FLOOD = 500


class Gate:
    """How far a source may read. By name, for readers are pickled."""

    by_name: dict = {}

    def __init__(self, name) -> None:
        self.name = name
        self.limit = 0
        self.by_name[name] = self

    def open(self, limit=10**9) -> None:
        self.limit = limit


class Steps(Source):
    """`splits` splits, each of `steps` batches of ROWS numbers, as far as its gate is open."""

    def __init__(self, gate, splits=1, steps=STEPS) -> None:
        self.gate = gate
        self.splits = splits
        self.steps = steps

    @property
    def boundedness(self):
        return Boundedness.BOUNDED

    @property
    def produced_type(self):
        return Types.LONG()

    def create_enumerator(self, context):
        return QueueEnumerator(context, list(range(self.splits)))

    def create_reader(self, context):
        return StepReader(context, self.gate, self.steps)

    @staticmethod
    def first(split):
        return split * 10**6


class StepReader(PolledSplitReader):
    def __init__(self, context, gate, length) -> None:
        super().__init__(context)
        self.gate = gate
        self.length = length
        self.steps = 0

    def poll_next(self):
        if self.steps >= Gate.by_name[self.gate].limit:
            self.context.wake_at(self.context.monotonic_ms() + 1)
            return ReaderStatus.NOTHING_AVAILABLE
        self.steps += 1
        return super().poll_next()

    def read(self, split):
        for step in range(self.length):
            start = Steps.first(split) + step * ROWS
            yield RowBatch(list(range(start, start + ROWS)))


class Counting(KeyedProcessFunction):
    """(value, how many of its key so far)."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value, count


def gated_program(gate, parallelism=2, splits=None, steps=STEPS, function=Counting):
    """Source -> keyed count -> collect: two tasks for each subtask, by default with a split for each source."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    executor = FakeExecutor()
    env.use_executor(executor)
    source = Steps(gate, parallelism if splits is None else splits, steps)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "steps").uid("steps")
    counted = (
        numbers.key_by(lambda value: value % KEYS, Types.LONG()).process(function()).uid("count")
    )
    counted.execute_and_collect()
    return executor.graph


class Hoarding(KeyedProcessFunction):
    """Keeps so much that it does not go inline."""

    def open(self, runtime_context):
        self.kept = runtime_context.get_state(ValueStateDescriptor("kept", Types.STRING()))

    def process_element(self, value, ctx):
        self.kept.update("x" * 10_000 + str(value))
        yield value, len(self.kept.value())


class Flooding(KeyedProcessFunction):
    """Gives more for a few records than the driver takes before it is asked to."""

    def process_element(self, value, ctx):
        for count in range(FLOOD):
            yield value, count


def count_of_splits(splits, steps=STEPS):
    return splits * steps * ROWS


def numbers_of_splits(splits, steps=STEPS):
    return [Steps.first(split) + i for split in range(splits) for i in range(steps * ROWS)]


def expected(splits, steps=STEPS):
    """What all records come to: each key's count rises by one."""
    found = Counter()
    for value in numbers_of_splits(splits, steps):
        found[value % KEYS] += 1
    return {(key, i) for key, count in found.items() for i in range(1, count + 1)}


def seen(rows):
    return Counter((value % KEYS, count) for value, count in rows)


def stand_still(driver, gate):
    """Of a program that floods, with one source: its consumer waits for the driver, which takes no more; what comes then waits."""
    driver.until_running()
    driver.grants = False
    gate.open(STEPS // 2)
    driver.until_held_up(set(driver.attempts) - set(driver.source_attempts))
