"""Functions that go on with what they have emitted. Expectations are PyFlink's, which encodes each result as it comes."""

import copy
import sys
import threading
from collections import Counter, defaultdict, deque
from itertools import starmap
from typing import NamedTuple

import pytest

from penstock.common import Configuration, Duration, Row, Time, Types, WatermarkStrategy
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    CoMapFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
)
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.hosting.minicluster import MiniCluster
from penstock.runtime.records import emissions
from penstock.runtime.records.emissions import (
    COPY_ALWAYS,
    COUNTED_ON,
    LOOKED_AT,
    SAMPLED,
    Emissions,
    as_they_are,
    may_count,
    tells_owners,
)
from tests.tools.programs.environments import collected, minicluster_environment
from tests.tools.programs.user_functions import ValueIsTime

SIDE = OutputTag("side")


pytestmark = pytest.mark.usefixtures("way")


@pytest.fixture(params=["counting", "copying"])
def way(request, monkeypatch):
    """Both ways to decide, on this interpreter too."""
    if request.param == "copying":
        monkeypatch.setattr(emissions, "_ALONE", COPY_ALWAYS)
        monkeypatch.setattr(emissions, "_LIST_ALONE", COPY_ALWAYS)
    elif sys.version_info[:2] in COUNTED_ON:
        assert emissions._ALONE > 0, (
            "this interpreter's reference counts are not what they should be"
        )
    return request.param


class Pair(NamedTuple):
    first: list
    second: int


@pytest.fixture
def env():
    return minicluster_environment(MiniCluster(parallelism=1)).set_parallelism(1)


class Grows(MapFunction, FlatMapFunction, CoMapFunction, ProcessFunction):
    """Emits one list again and again."""

    def open(self, runtime_context):
        self.seen = []

    def map(self, value):
        self.seen.append(value)
        return self.seen

    map1 = map2 = map  # ruff: ignore[builtin-attribute-shadowing]

    def flat_map(self, value):
        return [self.map(value)]

    def process_element(self, value, ctx):
        yield self.map(value)


class GrowsByKey(KeyedProcessFunction):
    def open(self, runtime_context):
        self.seen = []

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value)

    def on_timer(self, timestamp, ctx):
        self.seen.append(timestamp)
        yield self.seen


class GrowsByWindow(ProcessWindowFunction):
    def open(self, runtime_context):
        self.seen = []

    def process(self, key, context, elements):
        self.seen.extend(elements)
        return [self.seen]


class Grown(ProcessFunction):
    def open(self, runtime_context):
        self.seen = []

    def process_element(self, value, ctx):
        self.seen.append(value)
        yield SIDE, self.seen


def growing(value):
    seen = []
    for number in (1, 2, 3):
        seen.append(number)
        yield seen


IN_ORDER = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ValueIsTime())
WINDOWS = TumblingEventTimeWindows.of(Duration.of_millis(1))


@pytest.mark.parametrize(
    "apply",
    [
        lambda ds: ds.map(Grows()),
        lambda ds: ds.map(Grows(), Types.LIST(Types.INT())),
        lambda ds: ds.flat_map(Grows()),
        lambda ds: ds.process(Grows()),
        lambda ds: ds.process(Grown()).get_side_output(SIDE),
        lambda ds: ds.key_by(lambda _: 0).map(Grows()),
        lambda ds: ds.key_by(lambda _: 0).flat_map(Grows()),
        lambda ds: ds.key_by(lambda _: 0).process(GrowsByKey()),
        lambda ds: ds.key_by(lambda _: 0).window(WINDOWS).process(GrowsByWindow()),
        lambda ds: ds.connect(ds.filter(lambda _: False)).map(Grows()),
    ],
    ids=[
        "map",
        "typed map",
        "flat map",
        "process",
        "side output",
        "keyed map",
        "keyed flat map",
        "timers",
        "windows",
        "co map",
    ],
)
@pytest.mark.parametrize("has_time", [False, True])
def test_what_a_function_changes_later_does_not_reach_what_it_has_emitted(env, apply, has_time):
    numbers = env.from_collection([1, 2, 3])
    if has_time or "window" in apply.__code__.co_names:
        numbers = numbers.assign_timestamps_and_watermarks(IN_ORDER)
    assert collected(apply(numbers)) == [[1], [1, 2], [1, 2, 3]]


def test_a_generator_may_emit_one_list_as_it_grows(env):
    assert collected(env.from_collection([0]).flat_map(growing)) == [[1], [1, 2], [1, 2, 3]]


ITEM, SAME, LOCK = [1], ("a", 1), threading.Lock()


@pytest.mark.parametrize(
    "value",
    [
        [1, "a"],
        {"a": 1},
        {1, 2},
        bytearray(b"x"),
        Row(1, "x"),
        Row(a=[1]),
        ("a", {"b": [2]}),
        Counter("aab"),
        deque([1]),
        defaultdict(list, {"a": [1]}),
        Pair([1], 2),
        [[[[[[[1]]]]]]],
    ],
)
def test_what_can_be_changed_is_copied_with_what_is_in_it(value):
    held = [value]
    (copy,) = as_they_are(held)
    assert copy == value and type(copy) is type(value) and copy is not value
    nested = [list(as_they_are([kind])) for kind in ([ITEM], (ITEM,), {"k": ITEM}, Row(k=ITEM))]
    parts = [nested[0][0][0], nested[1][0][0], nested[2][0]["k"], nested[3][0].k]
    assert parts == [ITEM] * 4 and not any(part is ITEM for part in parts)


def test_what_cannot_be_changed_is_handed_on():
    assert list(as_they_are(iter([]))) == []
    given = [SAME, 5, None, "a", LOCK]
    assert all(one is other for one, other in zip(as_they_are([*given]), given, strict=True))


KINDS = {
    "list": lambda: [1, "a"],
    "dict": lambda: {"a": 1},
    "row": lambda: Row(a=1, b="x"),
    "set": lambda: {1},
    "nested": lambda: {"a": [1, {"b": [2]}], "c": (3, [4])},
    "tuple of lists": lambda: ([1], [[2]]),
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_what_nobody_else_has_is_handed_on_as_it_is(make):
    seen = []

    def fresh(_):
        value = make()
        seen.append(id(value))
        return value

    results = list(as_they_are(map(fresh, range(3))))
    assert results == [make()] * 3
    if emissions._ALONE != COPY_ALWAYS:
        assert list(map(id, results)) == seen


INNER = [1]
PAIR = ("a", [1])


@pytest.mark.parametrize(
    ("make", "inner_of"),
    [
        (lambda: {"a": INNER}, lambda value: value["a"]),
        (lambda: [INNER], lambda value: value[0]),
        (lambda: Row("x", INNER), lambda value: value[1]),
        (lambda: Row(a=INNER), lambda value: value.a),
        (lambda: (1, INNER), lambda value: value[1]),
        (lambda: (1, (2, INNER)), lambda value: value[1][1]),
        (lambda: [{"k": [INNER]}], lambda value: value[0]["k"][0]),
        (lambda: PAIR, lambda value: value[1]),
        (lambda: [PAIR], lambda value: value[0][1]),
    ],
)
def test_what_somebody_else_has_a_part_of_is_copied(make, inner_of):
    results = list(as_they_are(starmap(make, [()] * 3)))
    assert results == [make()] * 3
    for one in results:
        inner_of(one).append(7)
    assert INNER == PAIR[1] == [1]


def test_rows_that_share_their_values_are_each_ones_own():
    own = Row([1])
    results = list(as_they_are(map(copy.copy, [own, own])))
    results[0][0].append(7)
    assert results[1] == own == Row([1])


def test_items_of_a_list_that_is_given_away_are_handed_on_and_of_a_kept_one_copied():
    made = []

    def given_away(count):
        made.extend(Row(number) for number in range(count))
        return [Row(number) for number in range(count)]

    def emitted(results):
        for result in results:
            yield from as_they_are(result)

    assert [row[0] for row in emitted(map(given_away, [3]))] == [0, 1, 2]
    kept = [Row(1)]
    (copied,) = emitted(iter([kept]))
    assert copied == kept[0] and copied is not kept[0] and len(kept) == 1


class Mixed(ProcessFunction):
    """What cannot be changed comes first."""

    def open(self, runtime_context):
        self.seen = []

    def process_element(self, value, ctx):
        self.seen.append(value)
        yield value
        yield self.seen
        yield SIDE, self.seen


class AsyncGrown(AsyncFunction):
    def open(self, runtime_context):
        self.seen = []

    async def async_invoke(self, value):
        self.seen.append(value)
        return [self.seen]


class WindowsAside(GrowsByWindow):
    def process(self, key, context, elements):
        self.seen.extend(elements)
        yield SIDE, self.seen


GROWN = [[1], [1, 2], [1, 2, 3]]


def test_each_result_is_looked_at_by_itself(env):
    mixed = env.from_collection([1, 2, 3]).process(Mixed())
    assert [one for one in collected(mixed) if type(one) is list] == GROWN
    aside = env.from_collection([1, 2, 3]).process(Mixed()).get_side_output(SIDE)
    assert collected(aside) == GROWN


def test_windows_and_asynchronous_functions_emit_what_was_then(env):
    numbers = env.from_collection([1, 2, 3]).assign_timestamps_and_watermarks(IN_ORDER)
    aside = numbers.key_by(lambda _: 0).window(WINDOWS).process(WindowsAside())
    assert collected(aside.get_side_output(SIDE)) == GROWN
    called = AsyncDataStream.ordered_wait(
        env.from_collection([1, 2, 3]), AsyncGrown(), Time.seconds(60), 1
    )
    assert collected(called) == GROWN


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(
    "make", [lambda n: ["k", [n]], lambda n: ("k", [n]), lambda n: Row("k", [n])]
)
@pytest.mark.parametrize("is_new", [False, True])
def test_what_a_reduce_changes_inside_does_not_reach_what_it_has_emitted(
    env, backend, make, is_new
):
    def join(one, other):
        one[1].extend(other[1])
        return type(one)((one[0], one[1])) if is_new and type(one) is not Row else one

    env.configure(Configuration.from_dict({"state.backend.type": backend}))
    reduced = env.from_collection([make(n) for n in range(4)]).key_by(lambda v: v[0]).reduce(join)
    assert [list(one[1]) for one in collected(reduced)] == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]


def test_results_that_cannot_be_changed_are_trusted_until_a_sample_shows_others():
    emissions = Emissions()
    emissions.note([1] * (LOOKED_AT - 1))
    assert not emissions.are_trusted
    emissions.note([("a", None)])
    assert emissions.are_trusted
    results = [[1]]
    assert emissions.taken()(results) is results
    emissions.note([[1], *[2] * SAMPLED])
    assert not emissions.are_trusted
    emissions.note([1] * (2 * LOOKED_AT))
    assert not emissions.are_trusted, "it has shown what it can do"


def test_an_operator_that_emits_something_that_can_be_changed_is_never_trusted():
    emissions = Emissions()
    emissions.note([*range(LOOKED_AT), [1]])
    assert not emissions.are_trusted


@pytest.mark.parametrize(
    ("version", "implementation", "is_usual", "expected"),
    [
        ((3, 11), "cpython", True, True),
        ((3, 12), "cpython", True, True),
        ((3, 13), "cpython", True, True),
        ((3, 13), "cpython", False, False),
        ((3, 14), "cpython", True, True),
        ((3, 14), "cpython", False, False),
        ((3, 15), "cpython", True, False),
        ((3, 11), "pypy", True, False),
    ],
)
def test_references_are_counted_only_where_that_was_tried(
    version, implementation, is_usual, expected
):
    assert may_count(version, implementation, is_usual) is expected


@pytest.mark.parametrize("count", [1, 100])
def test_an_interpreter_that_counts_otherwise_is_found_out(monkeypatch, count):
    monkeypatch.setattr(emissions, "getrefcount", lambda _value: count)
    assert not tells_owners()


def test_this_interpreter_tells_owners_where_it_is_trusted(way):
    trusted = way == "counting" and sys.version_info[:2] in COUNTED_ON
    assert tells_owners() is trusted
