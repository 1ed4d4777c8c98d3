"""A program that type checkers read and nobody runs: what they infer, and what they have to find.

A line with an `ignore` comment is wrong on purpose. A checker that does not find it reports the comment.
"""

from collections.abc import Iterable, Iterator
from typing import Any, assert_type

from penstock.common import Row, Time, Types, WatermarkStrategy
from penstock.datastream import (
    AggregateFunction,
    CloseableIterator,
    CoMapFunction,
    ConnectedStreams,
    DataStream,
    FlatMapFunction,
    KeyedProcessFunction,
    KeyedStream,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    StreamExecutionEnvironment,
    WindowedStream,
)
from penstock.datastream.state import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from penstock.datastream.window import TimeWindow, Trigger, TriggerResult, TumblingEventTimeWindows

LATE = OutputTag("late", Types.STRING())
TEN_SECONDS = TumblingEventTimeWindows.of(Time.seconds(10))
env = StreamExecutionEnvironment.get_execution_environment()

# ---------------------------------------------------------------- sources

words = env.from_collection(["to", "be"])
assert_type(words, DataStream[str])
pairs = env.from_collection([("a", 1), ("b", 2)])
assert_type(pairs, DataStream[tuple[str, int]])
rows = env.from_collection([("a", 1)], Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.INT()]))
assert_type(rows, DataStream[Row])

# ---------------------------------------------------------------- functions of one record


class Length(MapFunction[str, int]):
    def map(self, value: str) -> int:
        return len(value)


class Letters(FlatMapFunction[str, str]):
    def flat_map(self, value: str) -> Iterable[str]:
        return value


class Long(ProcessFunction[str, int]):
    def process_element(
        self, value: str, ctx: ProcessFunction.Context
    ) -> Iterator[int | tuple[OutputTag, str]]:
        yield len(value)
        yield LATE, value


def letters(word: str) -> Iterator[str]:
    yield from word


assert_type(words.map(lambda word: word.upper()), DataStream[str])
assert_type(words.map(lambda word: (word, len(word)), Types.TUPLE([])), DataStream[tuple[str, int]])
assert_type(words.map(len), DataStream[int])
assert_type(words.map(Length()), DataStream[int])
assert_type(words.flat_map(lambda word: word.split()), DataStream[str])
assert_type(words.flat_map(letters), DataStream[str])
assert_type(words.flat_map(Letters()), DataStream[str])
assert_type(words.filter(lambda word: word.startswith("b")), DataStream[str])
assert_type(words.process(Long()), DataStream[int])
assert_type(words.rebalance().name("w").union(words), DataStream[str])
assert_type(
    words.assign_timestamps_and_watermarks(WatermarkStrategy.no_watermarks()), DataStream[str]
)
assert_type(words.get_side_output(LATE), DataStream[Any])
words.map(lambda word: word.no_such_method())  # type: ignore[attr-defined]
words.filter(lambda word: word > 3)  # type: ignore[operator]
pairs.map(Length())  # type: ignore[arg-type]
pairs.process(Long())  # type: ignore[arg-type]
words.union(pairs)  # type: ignore[arg-type]

# ---------------------------------------------------------------- keyed streams

keyed = pairs.key_by(lambda pair: pair[0])
assert_type(keyed, KeyedStream[tuple[str, int], str])
assert_type(pairs.key_by(lambda pair: pair[1], Types.INT()), KeyedStream[tuple[str, int], int])


class Count(KeyedProcessFunction[str, tuple[str, int], int]):
    def process_element(
        self, value: tuple[str, int], ctx: KeyedProcessFunction.Context
    ) -> Iterator[int]:
        yield value[1]


class Sum(ReduceFunction[tuple[str, int]]):
    def reduce(self, value1: tuple[str, int], value2: tuple[str, int]) -> tuple[str, int]:
        return value1[0], value1[1] + value2[1]


assert_type(keyed.process(Count()), DataStream[int])
assert_type(keyed.map(lambda pair: pair[1] / 2), DataStream[float])
assert_type(keyed.reduce(lambda a, b: (a[0], a[1] + b[1])), DataStream[tuple[str, int]])
assert_type(keyed.reduce(Sum()), DataStream[tuple[str, int]])
ones = words.map(lambda word: (word, 1)).key_by(lambda pair: pair[0])
assert_type(ones.reduce(lambda a, b: (a[0], a[1] + b[1])), DataStream[tuple[str, int]])
assert_type(
    ones.window(TEN_SECONDS).reduce(lambda a, b: (a[0], a[1] + b[1])), DataStream[tuple[str, int]]
)
assert_type(keyed.sum(1), DataStream[tuple[str, int]])
words.key_by(len).process(Count())  # type: ignore[arg-type]
keyed.map(lambda pair: pair[0] + pair[1])  # type: ignore[operator]

# ---------------------------------------------------------------- windows


class Mean(AggregateFunction[tuple[str, int], list[int], float]):
    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: tuple[str, int], accumulator: list[int]) -> list[int]:
        return [*accumulator, value[1]]

    def get_result(self, accumulator: list[int]) -> float:
        return sum(accumulator) / len(accumulator)

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


class Ends(ProcessWindowFunction[tuple[str, int], str, str, TimeWindow]):
    def process(
        self,
        key: str,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[tuple[str, int]],
    ) -> Iterator[str]:
        assert_type(context.window(), TimeWindow)
        yield f"{key} {context.window().end}"


class Described(ProcessWindowFunction[float, str, str, TimeWindow]):
    def process(
        self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[float]
    ) -> Iterator[str]:
        yield f"{key} {sum(elements)}"


class AtTheFirst(Trigger[tuple[str, int], TimeWindow]):
    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE

    def on_processing_time(
        self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    on_event_time = on_processing_time

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None: ...
    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None: ...


def of_states(
    value: ValueState[int],
    values: ListState[str],
    entries: MapState[str, float],
    mean: AggregatingState[int, float],
    bare: ReducingState,
) -> None:
    assert_type(value.value(), int)
    assert_type(values.get(), list[str])
    assert_type(entries.get("a"), float)
    assert_type(list(entries.items()), list[tuple[str, float]])
    assert_type(mean.get(), float)
    assert_type(bare.get(), Any)
    value.update("one")  # type: ignore[arg-type]


windows = keyed.window(TEN_SECONDS)
assert_type(windows.trigger(AtTheFirst()), WindowedStream[tuple[str, int], str])
assert_type(windows, WindowedStream[tuple[str, int], str])
assert_type(windows.allowed_lateness(5), WindowedStream[tuple[str, int], str])
assert_type(windows.reduce(lambda a, b: (a[0], a[1] + b[1])), DataStream[tuple[str, int]])
assert_type(windows.reduce(Sum(), Ends()), DataStream[str])
assert_type(windows.aggregate(Mean()), DataStream[float])
assert_type(windows.aggregate(Mean(), Described()), DataStream[str])
assert_type(windows.process(Ends()), DataStream[str])
assert_type(keyed.count_window(3).process(Ends()), DataStream[str])
assert_type(
    pairs.window_all(TEN_SECONDS).reduce(lambda a, b: (a[0], b[1])), DataStream[tuple[str, int]]
)
windows.process(Described())  # type: ignore[arg-type]

# ---------------------------------------------------------------- two streams


class Either(CoMapFunction[str, tuple[str, int], int]):
    def map1(self, value: str) -> int:
        return len(value)

    def map2(self, value: tuple[str, int]) -> int:
        return value[1]


connected = words.connect(pairs)
assert_type(connected, ConnectedStreams[str, tuple[str, int]])
assert_type(connected.map(Either()), DataStream[int])
joined = words.join(pairs).where(lambda word: word).equal_to(lambda pair: pair[0])
assert_type(
    joined.window(TEN_SECONDS).apply(lambda word, pair: (word, pair[1])),
    DataStream[tuple[str, int]],
)
grouped = words.co_group(pairs).where(lambda word: word).equal_to(lambda pair: pair[0])
assert_type(
    grouped.window(TEN_SECONDS).apply(lambda words, pairs: [len(words) + len(pairs)]),
    DataStream[int],
)

# ---------------------------------------------------------------- results

with words.execute_and_collect("words") as results:
    assert_type(results, CloseableIterator[str])
    for word in results:
        assert_type(word, str)
assert_type(words.execute_and_collect(limit=3), list[str])
