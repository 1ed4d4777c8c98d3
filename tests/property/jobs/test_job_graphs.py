"""Any program gives the same results at any parallelism, with any batches, chained or not, in any order of turns."""

import tempfile
from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Time, Types, WatermarkStrategy
from penstock.datastream import (
    CoMapFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    StreamExchangeMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors import NumberSequenceSource
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from tests.tools.hosting.fake_executor import FakeExecutor
from tests.tools.programs.stepped_job import SteppedJob

MODULUS = 1009
AT_THE_END = 1 << 62
WINDOW = 50
EARLIER, LATER = 30, 20


@dataclass(frozen=True)
class Step:
    """One operator over streams that are there already; `number` is what the kind makes of it.

    `route`: how its first input is partitioned. `parallelism` is what must not matter, and so is `is_blocking`.
    """

    kind: str
    inputs: tuple[int, ...]
    number: int
    route: str


@dataclass(frozen=True)
class Setting:
    """What must not change the results."""

    parallelisms: list[int]
    blocking: list[bool]
    is_chaining: bool
    is_typed: bool
    batch: int
    turns: list[int]


# ---------------------------------------------------------------------- what each step means


def mapped(value, number):
    return (value * 7 + number) % MODULUS


def expanded(value, number):
    return [value + i for i in range(value % (number + 1) % 3)]


def is_kept(value, number):
    return value % (number + 2) != 0


def key_of(value, number):
    return value % (number + 1)


def pair_of(left, right):
    return (left * 31 + right) % MODULUS


def result_of(key, total):
    return (key * 100 + total) % MODULUS


def meaning(step, streams):
    """The streams that a step adds, as multisets of (value, timestamp)."""
    first = streams[step.inputs[0]]
    number = step.number
    if step.kind == "map":
        return [counted(((mapped(v, number), t), n) for (v, t), n in first.items())]
    if step.kind == "flat_map":
        expansions = ((w, t, n) for (v, t), n in first.items() for w in expanded(v, number))
        return [counted(((w, t), n) for w, t, n in expansions)]
    if step.kind == "filter":
        return [counted((one, n) for one, n in first.items() if is_kept(one[0], number))]
    if step.kind == "split":
        return [
            counted((one, n) for one, n in first.items() if one[0] % 2 == odd) for odd in (0, 1)
        ]
    if step.kind == "union":
        return [sum((streams[i] for i in step.inputs), Counter())]
    if step.kind == "spread":
        return [first]
    if step.kind == "connect":
        second = streams[step.inputs[-1]].items()
        mine = [((mapped(v, number), t), n) for (v, t), n in first.items()]
        return [counted([*mine, *(((v + 1, t), n) for (v, t), n in second)])]
    if step.kind == "join":
        return [joined(first, streams[step.inputs[-1]], number)]
    return [summed(step.kind, first, number)]


def joined(left, right, number):
    return counted(
        ((pair_of(v, w), max(t, u)), n * m)
        for (v, t), n in left.items()
        for (w, u), m in right.items()
        if key_of(v, number) == key_of(w, number) and t - EARLIER <= u <= t + LATER
    )


def summed(kind, stream, number):
    """Sums of keys, or of keys in windows."""
    totals: Counter = Counter()
    for (value, stamp), count in stream.items():
        end = AT_THE_END if kind == "keyed" else stamp - stamp % WINDOW + WINDOW - 1
        totals[key_of(value, number), end] += value * count
    return counted(((result_of(k, total), end), 1) for (k, end), total in totals.items())


def counted(pairs) -> Counter:
    found: Counter = Counter()
    for one, count in pairs:
        found[one] += count
    return found


# ---------------------------------------------------------------------- the same with the API


class SumAtTheEnd(KeyedProcessFunction):
    """The sum of each key, when its timer fires with the last watermark."""

    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + value)
        ctx.timer_service().register_event_time_timer(AT_THE_END)

    def on_timer(self, timestamp, ctx):
        yield result_of(ctx.get_current_key(), self.total.value())
        self.total.clear()


class Split(ProcessFunction):
    """Odd numbers to a side output."""

    def __init__(self, odd):
        self.odd = odd

    def process_element(self, value, ctx):
        yield (self.odd, value) if value % 2 else value


class OwnShare(ProcessFunction):
    """Of a stream that all subtasks see, each record once."""

    def open(self, runtime_context):
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.parallelism = runtime_context.get_number_of_parallel_subtasks()

    def process_element(self, value, ctx):
        if value % self.parallelism == self.subtask:
            yield value


class WindowSum(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield result_of(key, sum(elements))


class Sides(CoMapFunction):
    def __init__(self, number):
        self.number = number

    def map1(self, value):
        return mapped(value, self.number)

    def map2(self, value):
        return value + 1


class Pairs(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield pair_of(left, right)


def routed(stream, route):
    return stream if route == "default" else getattr(stream, route)()


def at(stream, parallelism):
    """None: left open."""
    return stream if parallelism is None else stream.set_parallelism(parallelism)


def add(step, streams, setting, mode, parallelism):
    declared = Types.LONG() if setting.is_typed else None
    number = step.number
    first = streams[step.inputs[0]].with_exchange_mode(mode)
    if step.kind == "union":
        return [first.union(*(streams[i] for i in step.inputs[1:]))]
    by_key = first.key_by(lambda v: key_of(v, number), Types.LONG())
    if step.kind == "keyed":
        made = by_key.process(SumAtTheEnd(), declared)
    elif step.kind == "window":
        window = TumblingEventTimeWindows.of(Time.milliseconds(WINDOW))
        made = by_key.window(window).process(WindowSum(), declared)
    elif step.kind == "join":
        other = streams[step.inputs[-1]].key_by(lambda v: key_of(v, number), Types.LONG())
        bounds = Time.milliseconds(-EARLIER), Time.milliseconds(LATER)
        made = by_key.interval_join(other).between(*bounds).process(Pairs(), declared)
    elif step.kind == "connect":
        other = routed(streams[step.inputs[-1]], step.route)
        made = routed(first, step.route).connect(other).map(Sides(number), declared)
    elif step.kind == "spread":
        made = first.broadcast().process(OwnShare(), declared)
    elif step.kind == "split":
        odd = OutputTag("odd", declared)
        made = at(routed(first, step.route).process(Split(odd), declared), parallelism)
        return [made, made.get_side_output(odd)]
    elif step.kind == "filter":
        made = routed(first, step.route).filter(lambda v: is_kept(v, number))
    elif step.kind == "map":
        made = routed(first, step.route).map(lambda v: mapped(v, number), declared)
    else:
        made = routed(first, step.route).flat_map(lambda v: expanded(v, number), declared)
    return [at(made, parallelism)]


def built(plan, setting):
    """The StreamGraph of the plan; all streams come to the driver with their number."""
    executor = FakeExecutor()
    env = StreamExecutionEnvironment.get_execution_environment().use_executor(executor)
    env.set_parallelism(setting.parallelisms[-1])
    if not setting.is_chaining:
        env.disable_operator_chaining()
    streams = []
    for number in range(2):
        source = NumberSequenceSource(0, 1)
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), f"source {number}")
        stream = stream.set_parallelism(setting.parallelisms[number])
        streams.append(stream if setting.is_typed else stream.map(lambda value: value))
    for step, parallelism, is_blocking in zip(
        plan, setting.parallelisms[2:], setting.blocking, strict=False
    ):
        mode = StreamExchangeMode.BATCH if is_blocking else StreamExchangeMode.UNDEFINED
        streams += add(step, streams, setting, mode, parallelism)
    numbered = [
        stream.map(lambda value, number=number: (number, value))
        for number, stream in enumerate(streams)
    ]
    numbered[0].union(*numbered[1:]).execute_and_collect(limit=1)
    return executor.graph


# ---------------------------------------------------------------------- the law

KINDS = [
    "map",
    "flat_map",
    "filter",
    "split",
    "union",
    "spread",
    "keyed",
    "window",
    "join",
    "connect",
]
ROUTES = ["default", "rebalance", "rescale", "shuffle", "global_"]


@st.composite
def plans(draw, kinds=KINDS, most=6):
    steps, streams = [], 2
    for _ in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from(kinds))
        last = 1 if kind == "join" else streams - 1  # pairs of what was multiplied were too many
        fewest = 1 + (kind in {"union", "join", "connect"})
        inputs = draw(st.lists(st.integers(0, last), min_size=fewest, max_size=3))
        steps.append(
            Step(kind, tuple(inputs), draw(st.integers(0, 4)), draw(st.sampled_from(ROUTES)))
        )
        streams += 2 if kind == "split" else 1
    return steps


SETTINGS = st.builds(
    Setting,
    st.lists(st.integers(1, 4), min_size=9, max_size=9),
    st.lists(st.booleans(), min_size=6, max_size=6),
    st.booleans(),
    st.booleans(),
    st.integers(1, 40),
    st.lists(st.integers(0, 50), max_size=60),
)
RECORDS = st.lists(st.integers(0, MODULUS), max_size=30)


@given(plans(), st.tuples(RECORDS, RECORDS), SETTINGS)
def test_a_random_program_gives_the_same_results_however_it_is_run(plan, records, setting):
    streams = [Counter((value, value) for value in values) for values in records]
    for step in plan:
        streams += meaning(step, streams)
    expected = counted(
        ((i, v), n) for i, found in enumerate(streams) for (v, _), n in found.items()
    )
    sources = {f"source {number}": values for number, values in enumerate(records)}
    with tempfile.TemporaryDirectory() as folder:
        job = SteppedJob(built(plan, setting), sources, setting.batch, folder)
        try:
            assert Counter(job.run(setting.turns)) == expected
        finally:
            job.close()


@given(plans(), st.tuples(RECORDS, RECORDS), SETTINGS)
def test_a_job_that_is_left_in_the_middle_leaves_nothing_behind(plan, records, setting):
    sources = {f"source {number}": values for number, values in enumerate(records)}
    with tempfile.TemporaryDirectory() as folder:
        job = SteppedJob(built(plan, setting), sources, setting.batch, folder)
        try:
            job.take(setting.turns)
        finally:
            job.close()  # looks for what is left
