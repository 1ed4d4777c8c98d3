"""Row functions on batches of columns, in one process without Spark: operators with their functions, no source and no exchange.

Records have 7 fields, as bids of Nexmark; a batch has 4,096 of them, or 16. Seconds are CPU seconds of the process. Floor: the same
operators with `penstock.task.functions-as-columns` off, which is how they ran before.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.figures import Figure
from penstock.common.typeinfo import Types
from penstock.engine.model.graph.chain import ChainedOperator, ChainInput, ChainSpec, ChainTarget
from penstock.engine.model.row import Row
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import ColumnBatch
from penstock.engine.runtime.operator import OperatorContext
from penstock.engine.runtime.operators import FilterOperator, FlatMapOperator, MapOperator
from penstock.engine.runtime.operators.stateless import FunctionOperator
from penstock.engine.runtime.task.chain import OperatorChain

ABOUT = __doc__.split("\n\n", maxsplit=1)[1].strip()
RECORDS = 400_000
BATCHES = (4096, 16)
FIELDS = {
    "auction": Types.LONG(), "bidder": Types.LONG(), "price": Types.LONG(),
    "channel": Types.STRING(), "url": Types.STRING(), "ts": Types.LONG(), "extra": Types.STRING(),
}  # fmt: skip
BID = Types.ROW_NAMED(list(FIELDS), list(FIELDS.values()))
DEAR = 9000


def bids(count: int) -> ColumnBatch:
    made = np.random.default_rng(7)
    whole = [made.integers(0, most, count) for most in (1000, 1000, 10_000)]
    channels = [f"channel-{number % 9}" for number in range(count)]
    urls = [f"https://auction.example/{number}" for number in range(count)]
    arrays = [*map(pa.array, whole), channels, urls, np.arange(count), ["extra" * 4] * count]
    return ColumnBatch(pa.RecordBatch.from_arrays([*map(pa.array, arrays)], names=list(FIELDS)))


def with_loop(bid: Any) -> tuple[int, int]:
    total = 0
    for letter in bid.channel[-2:]:
        total += ord(letter)
    return bid.auction, total


def _map(function: Callable[[Any], Any]) -> FunctionOperator:
    return MapOperator(UserFunction(function))


def _filter(function: Callable[[Any], Any]) -> FunctionOperator:
    return FilterOperator(UserFunction(function))


def _flat_map(function: Callable[[Any], Any]) -> FunctionOperator:
    return FlatMapOperator(UserFunction(function))


CASES: dict[str, Callable[[], list[FunctionOperator]]] = {
    "map, attributes": lambda: [
        _map(lambda bid: (bid.auction, bid.bidder, bid.price * 0.908, bid.ts))
    ],
    "map, positions": lambda: [_map(lambda bid: (bid[0], bid[1], bid[2] * 0.908, bid[5]))],
    "map to Rows": lambda: [_map(lambda bid: Row(auction=bid.auction, price=bid.price * 0.908))],
    "map with a loop": lambda: [_map(with_loop)],
    "map that returns the record": lambda: [_map(lambda bid: bid)],
    "filter": lambda: [_filter(lambda bid: bid.price > DEAR)],
    "flat_map": lambda: [_flat_map(lambda bid: [(bid.auction, 1), (bid.bidder, 1)])],
    "map, filter, map": lambda: [
        _map(lambda bid: (bid.auction, bid.price * 0.908)),
        _filter(lambda pair: pair[1] > DEAR),
        _map(lambda pair: (pair[0], round(pair[1]))),
    ],
}


def chain_of(operators: Sequence[FunctionOperator]) -> OperatorChain:
    last = len(operators) - 1
    chained = [
        ChainedOperator(
            at, f"Op{at}", f"uid{at}", one, None, "", (ChainTarget(None, at + 1),) * (at < last)
        )
        for at, one in enumerate(operators)
    ]
    chain = OperatorChain(ChainSpec(tuple(chained), (ChainInput(0, BID),), ()), lambda: 0)
    chain.open(
        lambda spec, timer: OperatorContext("job", "Task", spec.name, spec.uid, 0, 1, 1, 0, timer)
    )
    return chain


def _rate(operators: Sequence[FunctionOperator], batch: ColumnBatch, as_columns: bool) -> float:
    """Records/s of a chain, once it has seen some batches."""
    for operator in operators:
        operator.functions_as_columns = as_columns
    chain = chain_of(operators)

    def feed(times: int) -> None:
        for _ in range(times):
            for _routed in chain.feed(batch):
                pass

    times = RECORDS // 20 // len(batch)
    feed(times)
    begin = time.process_time()
    feed(times * 10)
    return times * 10 * len(batch) / (time.process_time() - begin)


def measure(_events: int | None, runs: int) -> list[Figure]:
    figures = []
    for count in BATCHES:
        batch = bids(count)
        for name, make in CASES.items():
            rates = partial(_rate, batch=batch)
            pairs = [
                (rates(make(), as_columns=True), rates(make(), as_columns=False))
                for _ in range(runs)
            ]
            values, floors = zip(*pairs, strict=True)
            settings = {"records in a batch": count}
            figures.append(Figure(f"row_functions {name}", values, "records/s", floors, settings))
    return figures
