"""Programs keyed by a field of typed rows: as with any other selector of the same keys, in both modes and of all operators."""

from operator import itemgetter

import pytest

from penstock.common import Row, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import (
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessJoinFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    WindowFunction,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from penstock.engine.model.errors import JobExecutionError
from penstock.engine.runtime.keys import KeySelection
from penstock.testing import MiniCluster
from tests.tools.programs.environments import collected_in_order

ITEM = Types.ROW_NAMED(["name", "at", "n"], [Types.STRING(), Types.LONG(), Types.LONG()])
ITEMS = [Row("ab"[number % 2] + str(number % 5), number * 10, number) for number in range(60)]
PLAIN = {
    "item": lambda row: row["name"],
    "position": lambda row: row[0],
    "attribute": lambda row: row.name,
    "getter": itemgetter("name"),
}


PLAIN_PAIRS = {
    "items": lambda row: (row["name"], row["n"]),
    "mixed": lambda row: (row.name, row[2]),
    "getter": itemgetter("name", "n"),
}


def opaque(row):
    return "".join(row.name)


def opaque_pair(row):
    return "".join(row.name), row.n + 0


def collected_by_repr(stream):
    return collected_in_order(stream, key=repr)


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value.at


IN_ORDER = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())


def items(mode):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.use_executor(MiniCluster(parallelism=2).executor()).set_runtime_mode(mode)
    return env.from_collection(ITEMS, ITEM).assign_timestamps_and_watermarks(IN_ORDER)


BATCH = pytest.param(RuntimeExecutionMode.BATCH, marks=pytest.mark.long)


@pytest.fixture(params=[RuntimeExecutionMode.STREAMING, BATCH])
def stream(request):
    return items(request.param)


class Numbered(KeyedProcessFunction):
    """Each record with its key and how many of them came."""

    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        yield ctx.get_current_key(), value.n, self.seen.value()


class BothNumbered(KeyedCoProcessFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element1(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        yield "one", ctx.get_current_key(), value.n

    def process_element2(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        yield "two", ctx.get_current_key(), value.n


class Pair(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left.n, right.n


class Numbers(WindowFunction):
    def apply(self, key, window, inputs):
        yield key, window.start, sorted(row.n for row in inputs)


class InPlace(MapFunction):
    """Changes the key of the record that it is given."""

    def map(self, value):
        value["name"] = value.name[:1]
        return value


def sums(keyed):
    return keyed.reduce(lambda one, two: Row(one.name, two.at, one.n + two.n))


def windows_of(assigner):
    return lambda keyed: keyed.window(assigner).apply(Numbers())


PROGRAMS = {
    "process": lambda keyed: keyed.process(Numbered()),
    "connected": lambda keyed: keyed.connect(keyed).process(BothNumbered()),
    "joined": lambda keyed: (
        keyed
        .interval_join(keyed)
        .between(Time.milliseconds(0), Time.milliseconds(100))
        .process(Pair())
    ),
    "reduced": sums,
    "tumbling": windows_of(TumblingEventTimeWindows.of(Time.milliseconds(200))),
    "sessions": windows_of(EventTimeSessionWindows.with_gap(Time.milliseconds(60))),
}


@pytest.mark.parametrize("program", list(PROGRAMS))
def test_a_field_as_key_is_any_other_key(stream, program):
    build = PROGRAMS[program]
    expected = collected_by_repr(build(stream.key_by(opaque)))
    assert len(expected) >= 10
    for selector in PLAIN.values():
        assert collected_by_repr(build(stream.key_by(selector))) == expected


TYPED = pytest.param(Types.TUPLE([Types.STRING(), Types.LONG()]), marks=pytest.mark.long)


@pytest.mark.parametrize("key_type", [None, TYPED])
@pytest.mark.parametrize("program", list(PROGRAMS))
def test_a_tuple_of_fields_as_key_is_any_other_key(stream, program, key_type):
    build = PROGRAMS[program]
    # few keys, several records of each
    stream = stream.map(lambda row: Row(row.name, row.at, row.n % 2), ITEM)
    expected = collected_by_repr(build(stream.key_by(opaque_pair, key_type)))
    assert len(expected) >= 10
    for selector in PLAIN_PAIRS.values():
        assert collected_by_repr(build(stream.key_by(selector, key_type))) == expected


@pytest.mark.parametrize("program", list(PROGRAMS))
def test_its_selector_is_not_called_where_records_come_as_columns(program, monkeypatch):
    def never(*_):
        raise AssertionError("the selector was called")

    monkeypatch.setattr(KeySelection, "keys_of_rows", never)
    for selector in (lambda row: row.name, lambda row: (row.name, row.n)):
        keyed = items(RuntimeExecutionMode.STREAMING).key_by(selector)
        assert len(collected_by_repr(PROGRAMS[program](keyed))) >= 10


def test_a_record_that_was_changed_in_place_has_its_new_key(stream):
    changed = stream.map(InPlace(), ITEM)
    seen = collected_by_repr(changed.key_by(lambda row: row.name).process(Numbered()))
    assert {(key, count) for key, _, count in seen} == {
        (key, count) for key in "ab" for count in range(1, 31)
    }


def test_a_field_that_is_not_there_is_named_with_the_operator_and_the_line(stream):
    keyed = stream.key_by(lambda row: row["other"]).process(Numbered())
    with pytest.raises(JobExecutionError) as failed:
        collected_by_repr(keyed)
    text = str(failed.value)
    assert "no field 'other'" in text and "in operator:" in text
    assert "test_fields_as_keys.py:" in text
