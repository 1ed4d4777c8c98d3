"""What operators cost: a keyed process function with state, and 24 chained maps.

Floors, in one process each and without the engine: a loop that calls the same ProcessFunction with a context of two
attributes and a dict as state; one loop that calls the same 24 functions. They make the records too.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.figures import Figure
from benchmarks.probes import TASKMANAGERS, timed_run
from benchmarks.workloads.range_source import RangeSource
from benchmarks.workloads.running_sum import Pair, RunningSum, key_of
from penstock.common import WatermarkStrategy
from penstock.datastream import DataStream
from penstock.engine.runtime.elements import Batch, RowBatch

KEYED_RECORDS = 8_000_000
KEYS = 10_000
LETTERS = "abcdefgh"
CHAINED_RECORDS = 2_000_000
CHAINED_MAPS = 24
BATCH = 4096


def pair_batches(low: int, high: int) -> Iterator[list[Pair]]:
    """Records number [low, high): (key, value)."""
    for at in range(low, high, BATCH):
        yield [(number * 7919 % KEYS, number & 15) for number in range(at, min(at + BATCH, high))]


def pairs_of(low: int, high: int) -> Iterator[Batch]:
    return map(RowBatch, pair_batches(low, high))


# ---------------------------------------------------------------------- keyed process function


class _DictState:
    """Value state over a dict, for the floor."""

    __slots__ = ("key", "values")

    def __init__(self) -> None:
        self.key: Any = None
        self.values: dict[Any, Any] = {}

    def value(self) -> Any:
        return self.values.get(self.key)

    def update(self, value: Any) -> None:
        self.values[self.key] = value


class _MinimalContext:
    __slots__ = ("key", "timestamp")

    def __init__(self) -> None:
        self.key = self.timestamp = None


def two_fields_of(pair: Pair) -> tuple[str, int]:
    """One to one with `key_of`."""
    return LETTERS[pair[0] & 7], pair[0]


def sums_in_one_loop(records: int, selector: Callable[[Pair], Any] = key_of) -> dict[int, int]:
    """The floor."""
    function, state, context = RunningSum(), _DictState(), _MinimalContext()
    function.total = state
    last: dict[int, int] = {}
    for batch in pair_batches(0, records):
        results: list[Pair] = []
        for pair in batch:
            state.key = context.key = selector(pair)
            results.extend(function.process_element(pair, context))
        last.update(results)
    return last


def _keyed(pairs: DataStream) -> DataStream:
    return pairs.key_by(key_of).process(RunningSum())


def _keyed_by_two(pairs: DataStream) -> DataStream:
    return pairs.key_by(two_fields_of).process(RunningSum())


# ---------------------------------------------------------------------- chained maps


def next_pair(pair: Pair) -> Pair:
    return pair[0], pair[1] + 1


def _chained(pairs: DataStream) -> DataStream:
    for _ in range(CHAINED_MAPS):
        pairs = pairs.map(next_pair)
    return pairs


def chain_in_one_loop(records: int) -> dict[int, int]:
    """The floor: every function is called for every record, none is known to be the same."""
    functions = [next_pair] * CHAINED_MAPS
    last: dict[int, int] = {}
    for batch in pair_batches(0, records):
        results: list[Pair] = []
        for pair in batch:
            result = pair
            for function in functions:
                result = function(result)
            results.append(result)
        last.update(results)
    return last


# ---------------------------------------------------------------------- figures


def _run(
    records: int,
    pipeline: Callable[[DataStream], DataStream],
    floor: Callable[[int], dict[int, int]],
    parallelism: int,
) -> tuple[float, float]:
    """Seconds of the job and of its floor; their results must agree."""
    source, watermarks = RangeSource(records, pairs_of), WatermarkStrategy.no_watermarks()
    run = timed_run(source, watermarks, pipeline, dict, "benchmark operators", parallelism)
    started = time.perf_counter()
    expected = floor(records)
    floor_seconds = time.perf_counter() - started
    if run.kept != expected or run.records != records:
        raise SystemExit("operators: the job's results differ from those of the plain loop")
    return run.data_seconds, floor_seconds


def measure(events: int | None, runs: int) -> list[Figure]:
    figures = []
    keyed, sums_by_two = events or KEYED_RECORDS, partial(sums_in_one_loop, selector=two_fields_of)
    for name, records, pipeline, floor, parallelism in (
        ("keyed process function", keyed, _keyed, sums_in_one_loop, TASKMANAGERS),
        ("the same, key of two fields", keyed, _keyed_by_two, sums_by_two, TASKMANAGERS),
        (f"{CHAINED_MAPS} chained maps", CHAINED_RECORDS, _chained, chain_in_one_loop, 1),
    ):
        done = [_run(records, pipeline, floor, parallelism) for _ in range(runs)]
        settings = {"records": records, "TaskManagers": parallelism, "floor": "plain loop in one process"}  # fmt: skip
        figures.append(
            Figure(
                name,
                [records / job for job, _ in done],
                "records/s",
                [records / f for _, f in done],
                settings,
            )
        )
    return figures
