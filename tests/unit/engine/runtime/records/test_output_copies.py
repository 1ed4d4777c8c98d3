"""Functions that go on with what they have emitted. Expectations are PyFlink's, which encodes each result as it comes."""

import asyncio
import copy
import datetime as dt
import io
import threading
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from itertools import chain, starmap
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from penstock.common import Configuration, Duration, Row, Time, Types, WatermarkStrategy
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
)
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.records.output_copies import own_copies, own_copy, shared, take
from tests.tools.programs.environments import collected, minicluster_environment
from tests.tools.programs.user_functions import ValueIsTime

SIDE = OutputTag("side")


class Pair(NamedTuple):
    first: list
    second: int


@dataclass
class Box:
    held: object


@dataclass(frozen=True)
class Point:
    x: int
    parts: object = ()


class Color(Enum):
    RED = 1


class Numbers(list):
    pass


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


ITEM = [1]


def taken(results):
    found = []
    take(found, results)
    return found


def copies_for_two(values):
    batch = next(shared(RowBatch(values), 2))
    return list(batch.values)  # ruff: ignore[pandas-use-of-dot-values] - a batch


CHANGEABLE = [
    *([1, "a"], {"a": 1}, {1, 2}, bytearray(b"x"), Row(1, "x"), Row(a=[1]), ("a", {"b": [2]})),
    *(Counter("aab"), deque([1]), defaultdict(list, {"a": [1]}), Pair([1], 2), [[[[[[[1]]]]]]]),
    *(Box(1), Box([2]), (1, Box(3)), Point(1, [2]), Numbers([1]), frozenset({Point(1, None)})),
    *({(1, Point(1)): [2]}, deque([[1]], maxlen=3), [Box(1)], Row(Row([1]), 2)),
]


@pytest.mark.parametrize("value", CHANGEABLE, ids=repr)
def test_what_can_be_changed_is_copied_with_what_is_in_it(value):
    (made,) = taken([value])
    assert made == value and type(made) is type(value)
    assert repr(made) == repr(value)
    assert own_copies([value]) == [value]
    if not isinstance(value, frozenset):
        assert made is not value and own_copies([value])[0] is not value
    for nested in ([ITEM], (ITEM,), {"k": ITEM}, Row(k=ITEM), deque([ITEM]), Box(ITEM)):
        (copied,) = taken([nested])
        before = repr(nested)
        ITEM.append(2)
        assert repr(copied) == before
        ITEM.pop()


@pytest.mark.parametrize("kind", [np.int64, np.object_])
def test_arrays_are_copied(kind):
    array = np.array([[1, 2], [3, 4]], kind, order="F")
    (made,) = taken([(1, array)])
    array[0, 0] = 9
    assert made[1].tolist() == [[1, 2], [3, 4]]
    record = np.zeros(1, [("a", np.int64)])[0]
    (made,) = taken([record])
    record["a"] = 5
    assert made["a"] == 0


NAMED = Pair(1, 2)


@pytest.mark.parametrize(
    "value",
    [
        *(5, None, "a", 1.5, b"x", True, ("a", 1), (1, (2, ("x",))), Decimal(1)),
        *(
            dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
            Color.RED,
            np.float64(1.5),
            Point(1),
            Point(1, (2, "x")),
            NAMED,
        ),
        *(frozenset({1, (2, 3)}), (Color.RED, Point(2)), len, Point, pa.array([1]), range(3), SIDE),
    ],
)
def test_what_cannot_be_changed_is_handed_on(value):
    (made,) = taken([value])
    assert made is value is own_copy(value)


def test_an_object_that_holds_itself_is_copied():
    value = [1]
    value.append(value)
    (made,) = taken([value])
    assert made is not value and made[0] == 1 and made[1] is not value


def test_an_iterator_of_pythons_own_is_passed_on_itself():
    for words in (iter("ab"), (letter for letter in "ab"), map(str, "ab"), chain("ab")):
        assert taken([words])[0] is words


class Cursor(Box):
    """A record that can be iterated, too."""

    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration


@dataclass(frozen=True)
class FrozenNumbers(list):
    name: str = ""


@pytest.mark.parametrize("several", [own_copies, taken, copies_for_two])
def test_what_only_looks_unchangeable_is_copied(several):
    cursor, file, numbers = Cursor([1]), io.BytesIO(b"a"), FrozenNumbers("n")
    frame, record = pd.DataFrame({"a": [[1]]}), np.zeros(1, [("a", np.int64)])[0]
    made = several([cursor, file, numbers, frame, record, (1, record)])
    cursor.held.append(2)
    file.write(b"changed")
    numbers.append(1)
    frame["a"][0].append(2)
    record["a"] = 5
    assert made[0].held == [1]
    assert (made[1].getvalue(), list(made[2]), made[3]["a"][0]) == (b"a", [], [1])
    assert (made[4]["a"], made[5][1]["a"]) == (0, 0)


class Shared(AsyncFunction):
    def open(self, runtime_context):
        self.seen = []

    async def async_invoke(self, value):
        await asyncio.sleep(0)
        self.seen.append(value)
        return [(len(self.seen), self.seen)]


@pytest.mark.parametrize("capacity", [2, 100])
@pytest.mark.parametrize("wait", [AsyncDataStream.ordered_wait, AsyncDataStream.unordered_wait])
def test_calls_that_run_together_do_not_change_each_others_results(env, wait, capacity):
    called = wait(env.from_collection(list(range(300))), Shared(), Time.seconds(60), capacity)
    assert [(size, len(seen)) for size, seen in collected(called) if size != len(seen)] == []


def test_what_cannot_be_copied_is_an_error_that_says_what_to_do():
    with pytest.raises(TypeError, match=r"lock.*cannot be copied.*enable_object_reuse"):
        taken([Box(threading.Lock())])


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
    results = taken(starmap(make, [()] * 3))
    assert results == [make()] * 3
    for one in results:
        inner_of(one).append(7)
    assert INNER == PAIR[1] == [1]


def test_rows_that_share_their_values_are_each_ones_own():
    own = Row([1])
    results = taken(map(copy.copy, [own, own]))
    results[0][0].append(7)
    assert results[1] == own == Row([1])


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


class Keeps(MapFunction, FilterFunction):
    """Emits what it keeps, or lets it pass, and changes it afterwards."""

    def open(self, runtime_context):
        self.kept = []

    def map(self, value):
        for one in self.kept:
            one.held = "changed"
        self.kept.append(Box(value))
        return self.kept[-1]

    def filter(self, box):
        for one in self.kept:
            one.held = "changed"
        self.kept.append(box)
        return True


def held(box):
    return box.held


@pytest.mark.parametrize("has_time", [False, True])
@pytest.mark.parametrize(
    "apply",
    [
        lambda ds: ds.map(Keeps()),
        lambda ds: ds.map(Box).filter(Keeps()),
        lambda ds: ds.map(Box).key_by(lambda _: 0).filter(Keeps()),
    ],
    ids=["map", "filter", "keyed filter"],
)
def test_objects_of_own_classes_stay_as_they_were(env, apply, has_time):
    numbers = env.from_collection([1, 2, 3])
    if has_time:
        numbers = numbers.assign_timestamps_and_watermarks(IN_ORDER)
    assert collected(apply(numbers).map(held)) == [1, 2, 3]


def test_what_a_later_function_changes_does_not_reach_what_an_earlier_one_keeps(env):
    def appends(value):
        value.append("later")
        return len(value)

    assert collected(env.from_collection([1, 2, 3]).map(Grows()).map(appends)) == [2, 3, 4]


def test_one_object_that_is_twice_in_a_collection_is_two_records(env):
    def appends(value):
        value.append("later")
        return value

    same = []
    assert collected(env.from_collection([same, same]).map(appends)) == [["later"]] * 2


def test_a_change_after_very_many_immutable_results_does_not_show(env):
    """As after few: nothing is concluded from the results that came before."""

    def alarms(number):
        if number > 5000 and number % 128 == 5:
            seen.append(number)
            return seen
        return number

    seen = []
    found = collected(env.from_collection(list(range(9000))).map(alarms))
    lengths = [len(one) for one in found if type(one) is list]
    assert lengths == list(range(1, len(lengths) + 1)) and len(lengths) > 20


def test_with_object_reuse_nothing_is_copied(env):
    env.get_config().enable_object_reuse()
    assert collected(env.from_collection([1, 2, 3]).map(Grows())) == [[1, 2, 3]] * 3
