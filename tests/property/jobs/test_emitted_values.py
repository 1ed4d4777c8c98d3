"""What a function emits arrives as it was when it was emitted, and what a later function changes stays with that one.

Functions keep some objects, change them, and emit them in any pattern. Expected is a copy that is made at each emission, by an
independent run of the same pattern. Source: Flink with object reuse off; PyFlink, which encodes each result as it comes.
"""

import copy
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Duration, Row, Time, Types, WatermarkStrategy
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
)
from penstock.datastream.state import MapStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.engine.hosting.local.minicluster import MiniCluster
from tests.tools.programs.environments import collected, minicluster_environment
from tests.tools.programs.user_functions import ValueIsTime

SIDE = OutputTag("side")


@dataclass
class Box:
    held: Any
    parts: list = field(default_factory=list)


class Words(list):
    pass


MAKE = (
    list,
    dict,
    set,
    Words,
    deque,
    bytearray,
    lambda: Row(a=0, b=[]),
    lambda: ("t", [0]),
    lambda: Box(0),
    lambda: [[[[[[0]]]]]],
    lambda: np.zeros(2, np.int64),
    lambda: {"k": (1, [Box(0)])},
)


def change(value, number):
    """Change an object in place, as deep as it goes."""
    match value:
        case Box():
            value.held = number
            value.parts.append(number)
        case Row():
            value.a = number
            value.b.append(number)
        case dict() if "k" in value:
            change(value["k"][1][0], number)
        case dict():
            value[number] = number
        case set():
            value.add(number)
        case bytearray():
            value.append(number % 256)
        case np.ndarray():
            value[0] = number
        case ("t", inner):
            inner.append(number)
        case [[*_] as inner]:
            change(inner, number)
        case list() | deque():
            value.append(number)


def shown(value):
    return value.tolist() if isinstance(value, np.ndarray) else repr(value)


def spoiled(value):
    """A later function that changes what it gets."""
    before = shown(value)
    change(value, 999)
    return before


STEP = st.lists(
    st.tuples(st.sampled_from(["emit", "emit", "change", "plain"]), st.integers(0, 2)),
    min_size=1,
    max_size=4,
)
PROGRAMS = st.tuples(
    st.lists(st.sampled_from(range(len(MAKE))), min_size=3, max_size=3),
    st.lists(STEP, min_size=2, max_size=6),
)


class Emits:
    """Runs a program: one step for each call."""

    def __init__(self, program):
        self.kinds, self.steps = program

    def open(self, runtime_context):
        self.kept = [MAKE[kind]() for kind in self.kinds]
        self.calls = 0

    def step(self):
        actions = self.steps[self.calls]
        self.calls += 1
        for at, (action, which) in enumerate(actions):
            if action == "change":
                change(self.kept[which], 10 * self.calls + at)
            else:
                yield self.kept[which] if action == "emit" else (at, "plain")

    def as_list(self):
        """One object that is emitted and goes on changing while the list is made."""
        return list(self.step())


def expected(program, *, lists=False):
    run = Emits(program)
    run.open(None)
    found = []
    for _ in program[1]:
        found += map(copy.deepcopy, run.as_list() if lists else run.step())
    return list(map(shown, found))


class Maps(Emits, MapFunction):
    def map(self, value):
        return self.as_list()


class Flat(Emits, FlatMapFunction):
    def flat_map(self, value):
        return self.as_list()


class Generates(Emits, FlatMapFunction):
    def flat_map(self, value):
        yield from self.step()


class Processes(Emits, ProcessFunction):
    def process_element(self, value, ctx):
        yield from self.step()


class Aside(Emits, ProcessFunction):
    def process_element(self, value, ctx):
        for one in self.step():
            yield SIDE, one


class Keyed(Emits, KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield from self.step()


class Timers(Emits, KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value)

    def on_timer(self, timestamp, ctx):
        yield from self.step()


class Co(Emits, CoFlatMapFunction):
    def flat_map1(self, value):
        yield from self.step()

    def flat_map2(self, value):
        return ()


class Broadcasts(Emits, BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield from self.step()

    def process_broadcast_element(self, value, ctx):
        return ()


class Windows(Emits, ProcessWindowFunction):
    def process(self, key, context, elements):
        yield from self.step()


class Waits(Emits, AsyncFunction):
    async def async_invoke(self, value):
        return self.as_list()


class Passes(Emits, FilterFunction):
    """Lets records pass, keeps them, and changes them later."""

    def open(self, runtime_context):
        super().open(runtime_context)
        self.passed = []

    def filter(self, value):
        for one in self.passed:
            change(one, 555)
        self.passed.append(value)
        return True


IN_TIME = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ValueIsTime())
STATE = MapStateDescriptor("rules", Types.STRING(), Types.STRING())


def in_time(stream):
    return stream.assign_timestamps_and_watermarks(IN_TIME)


def keyed(stream):
    return in_time(stream).key_by(lambda _: 0)


WAYS = {
    "flat_map": (lambda ds, p: ds.flat_map(Flat(p)), True),
    "map": (lambda ds, p: ds.map(Maps(p)).flat_map(list), True),
    "generator": (lambda ds, p: ds.flat_map(Generates(p)), False),
    "process": (lambda ds, p: ds.process(Processes(p)), False),
    "timestamps": (lambda ds, p: in_time(ds).process(Processes(p)), False),
    "side output": (lambda ds, p: ds.process(Aside(p)).get_side_output(SIDE), False),
    "keyed process": (lambda ds, p: keyed(ds).process(Keyed(p)), False),
    "timers": (lambda ds, p: keyed(ds).process(Timers(p)), False),
    "co": (lambda ds, p: ds.connect(ds.filter(lambda _: False)).flat_map(Co(p)), False),
    "broadcast": (
        lambda ds, p: ds.connect(ds.filter(lambda _: False).broadcast(STATE)).process(
            Broadcasts(p)
        ),
        False,
    ),
    "windows": (
        lambda ds, p: (
            keyed(ds).window(TumblingEventTimeWindows.of(Duration.of_millis(1))).process(Windows(p))
        ),
        False,
    ),
    "async": (
        lambda ds, p: AsyncDataStream.ordered_wait(ds, Waits(p), Time.seconds(60), 1),
        True,
    ),
    "filter": (lambda ds, p: ds.process(Processes(p)).filter(Passes(p)), False),
}


def environment():
    return minicluster_environment(MiniCluster(parallelism=1)).set_parallelism(1)


@pytest.mark.parametrize("is_remote", [False, True], ids=["chained", "remote"])
@pytest.mark.parametrize(("apply", "lists"), WAYS.values(), ids=WAYS)
@settings(max_examples=5)
@given(program=PROGRAMS)
def test_what_arrives_is_what_was_emitted(apply, lists, is_remote, program):
    numbers = environment().from_collection(list(range(len(program[1]))))
    emitted = apply(numbers, program)
    later = emitted.map(spoiled)
    if is_remote:
        later = later.start_new_chain()
    assert collected(later) == expected(program, lists=lists)


@settings(max_examples=10)
@given(program=PROGRAMS)
def test_each_of_several_consumers_has_its_own(program):
    numbers = environment().from_collection(list(range(len(program[1]))))
    emitted = numbers.process(Processes(program))
    both = emitted.map(spoiled).union(emitted.map(spoiled), emitted.map(spoiled).start_new_chain())
    assert sorted(map(str, collected(both))) == sorted(map(str, expected(program) * 3))
