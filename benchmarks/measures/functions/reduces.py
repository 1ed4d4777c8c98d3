"""Reduces of windows and of BATCH jobs, in one process without Spark: one operator, fed with batches of columns or of tuples.

A batch has 4,096 records of a key (a text), two numbers and a float. Windows are tumbling, of 10 s, and a batch covers 4 s. Seconds are CPU
seconds of the process. Floor: the function is called for each record (`penstock.task.functions-as-columns: false`). Both run in turns.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.figures import Figure
from penstock.common import Time
from penstock.common.typeinfo import Types
from penstock.model.row import Row
from penstock.runtime.codecs.convert import arrow_schema, to_rows
from penstock.runtime.context import UserFunction
from penstock.runtime.elements import Batch, ColumnBatch, Watermark
from penstock.runtime.keys import KeySelection
from penstock.runtime.operator import Operator, OperatorContext
from penstock.runtime.operators import ReduceContents, ReduceOperator, window_operator
from penstock.runtime.user_metrics import Counter
from penstock.runtime.windowing import TumblingEventTimeWindows

ABOUT = __doc__.split("\n\n", maxsplit=1)[1].strip()
ROWS = 4096
BATCHES = 60
STEP_MS = 4000
KEYS = {"100 keys": 100, "50,000 keys": 50_000}
TYPES = [Types.STRING(), Types.LONG(), Types.LONG(), Types.DOUBLE()]
SALE = Types.ROW_NAMED(["user", "n", "price", "x"], TYPES)


def sums(one: Any, other: Any) -> Row:
    return Row(user=one.user, n=one.n + other.n, price=max(one.price, other.price), x=other.x)


def of_tuples(one: Any, other: Any) -> tuple[Any, ...]:
    return one[0], one[1] + other[1], max(one[2], other[2]), other[3]


def of_floats(one: Any, other: Any) -> Row:
    return Row(user=one.user, n=one.n, price=one.price, x=one.x + other.x)


class NoTimers:
    """Processing time that stands still."""

    def now_ms(self) -> int:
        return 0

    def schedule(self, at_ms: int) -> None:
        """Nothing fires."""

    def cancel(self) -> None:
        """There is nothing."""


def batches(keys: int, *, as_tuples: bool) -> list[Batch]:
    made = np.random.default_rng(3)
    found: list[Batch] = []
    for number in range(BATCHES):
        columns = [
            pa.array([f"user-{one}" for one in made.integers(0, keys, ROWS)]),
            pa.array(made.integers(0, 10, ROWS)), pa.array(made.integers(0, 10_000, ROWS)),
            pa.array(made.random(ROWS)),
        ]  # fmt: skip
        stamps = np.sort(made.integers(number * STEP_MS, (number + 1) * STEP_MS, ROWS))
        data = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(SALE))
        batch = ColumnBatch(data, stamps)
        if as_tuples:
            batch = to_rows(batch, Types.TUPLE(TYPES))  # type: ignore[assignment]
        found.append(batch)
    return found


def windows(function: Callable[..., Any], key: Callable[[Any], Any]) -> Operator:
    return window_operator(
        assigner=TumblingEventTimeWindows.of(Time.milliseconds(10_000)),
        contents=ReduceContents(UserFunction(function)),
        keys=KeySelection(key, None, SALE),
    )


def reduces(function: Callable[..., Any], key: Callable[[Any], Any]) -> Operator:
    return ReduceOperator(UserFunction(function), KeySelection(key, None, SALE)).in_batch()


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], bool, bool]] = {
    "window, sum and maximum": (windows, sums, False, True),
    "window, sum and maximum, tuples": (windows, of_tuples, True, True),
    "window, sum of floats": (windows, of_floats, False, True),
    "BATCH, sum and maximum": (reduces, sums, False, False),
    "BATCH, sum of floats": (reduces, of_floats, False, False),
}
"""What makes the operator, its function, whether records come as tuples, and whether they have timestamps."""


def _fed(operator: Any, found: list[Batch], has_stamps: bool) -> Iterator[object]:
    for number, one in enumerate(found):
        batch = one
        if isinstance(batch, ColumnBatch):
            batch = ColumnBatch(batch.data, batch.timestamps if has_stamps else None)
            batch = operator.rows_from(batch, SALE, 0)
        yield from operator.process(batch, 0)
        if has_stamps:
            yield from operator.process_watermark(Watermark(number * STEP_MS), 0)
    yield from operator.finish()


def rate(name: str, found: list[Batch], *, as_columns: bool) -> float:
    make, function, as_tuples, has_stamps = CASES[name]
    key = (lambda one: one[0]) if as_tuples else (lambda one: one.user)
    operator = make(function, key)
    operator.functions_as_columns = as_columns
    timers = NoTimers()
    kinds = (None if as_tuples else SALE,)
    context = OperatorContext(
        "job", "Task", "Op", "uid", 0, 1, 128, 0, timers, input_types=kinds,
        late_records_dropped=Counter(), is_batch=not has_stamps,
    )  # fmt: skip
    operator.open(context)
    begin = time.process_time()
    for _ in _fed(operator, found, has_stamps):
        pass
    return ROWS * BATCHES / (time.process_time() - begin)


def measure(_events: int | None, runs: int) -> list[Figure]:
    figures = []
    for told, keys in KEYS.items():
        for name, (_, _, as_tuples, _) in CASES.items():
            found = batches(keys, as_tuples=as_tuples)
            pairs = [
                (rate(name, found, as_columns=True), rate(name, found, as_columns=False))
                for _ in range(runs)
            ]
            values, floors = zip(*pairs, strict=True)
            settings = {"keys": told.split()[0], "batches": BATCHES}
            figures.append(Figure(f"reduces {name}", values, "records/s", floors, settings))
    return figures
