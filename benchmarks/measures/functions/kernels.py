"""Row functions in kernels, columns in and columns out, in one process without Spark: operators with their functions behind a batch of
columns, in front of an exchange of a declared type.

Records have 7 fields, as bids of Nexmark. Seconds are CPU seconds of the process. Floor: the same chain in one loop over the columns
(`columns` in the guide), whose results become columns at the exchange. Both run in turns.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.figures import Figure
from benchmarks.measures.functions.row_functions import BID, DEAR, bids
from penstock.common.typeinfo import Types
from penstock.model.graph.chain import (
    ChainedOperator,
    ChainInput,
    ChainOutput,
    ChainSpec,
    ChainTarget,
)
from penstock.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.model.ids import DataSetId
from penstock.model.row import Row
from penstock.runtime.codecs.convert import to_columns
from penstock.runtime.context import UserFunction
from penstock.runtime.elements import ColumnBatch, RowBatch
from penstock.runtime.operator import OperatorContext
from penstock.runtime.operators import FilterOperator, MapOperator
from penstock.runtime.operators.stateless import FunctionOperator
from penstock.runtime.task.chain import OperatorChain

ABOUT = __doc__.split("\n\n", maxsplit=1)[1].strip()
RECORDS = 1_000_000
BATCHES = (4096, 1024, 512)
LONG, DOUBLE, STRING = Types.LONG(), Types.DOUBLE(), Types.STRING()
PAIR = Types.TUPLE([LONG, DOUBLE])
Made = list[tuple[Callable[[Any], Any], Any]]
"""Functions with the declared types of their results; of a filter, the function alone."""


def in_euros(bid: Any) -> Row:
    return Row(auction=bid.auction, bidder=bid.bidder, price=bid.price * 0.908, ts=bid.ts)


def by_price(bid: Any) -> tuple[int, str]:
    if bid.price < 1000:
        return bid.auction, "cheap"
    if bid.price < DEAR:
        return bid.auction, "usual"
    return bid.auction, "dear"


Q1 = Types.ROW_NAMED(["auction", "bidder", "price", "ts"], [LONG, LONG, DOUBLE, LONG])
CASES: dict[str, Made] = {
    "q1": [(in_euros, Q1)],
    "map, filter, map, all declared": [
        (lambda bid: (bid.auction, bid.price * 0.908), PAIR),
        (lambda pair: pair[1] > DEAR * 0.4, "filter"),
        (lambda pair: (pair[0] * 2, pair[1] / 2), PAIR),
    ],
    "map, filter, map, the last one declared": [
        (lambda bid: (bid.auction, bid.price * 0.908), None),
        (lambda pair: pair[1] > DEAR * 0.4, "filter"),
        (lambda pair: (pair[0] * 2, pair[1] / 2), PAIR),
    ],
    "filter": [(lambda bid: bid.price > DEAR, "filter")],
    "branches": [(by_price, Types.TUPLE([LONG, STRING]))],
    "texts": [
        (
            lambda bid: (bid.channel.strip().lower(), bid.url[:20], f"{bid.auction}/{bid.bidder}"),
            Types.TUPLE([STRING, STRING, STRING]),
        )
    ],
}


def chain_of(made: Made) -> OperatorChain:
    """The chain of these functions, in front of an exchange."""
    chained, kind = [], BID
    for at, (function, output) in enumerate(made):
        operator: FunctionOperator
        if output == "filter":
            operator = FilterOperator(UserFunction(function))
        else:
            operator, kind = MapOperator(UserFunction(function)), output
        targets = (ChainTarget(None, at + 1, kind),) * (at < len(made) - 1)
        chained.append(ChainedOperator(at, f"Op{at}", f"uid{at}", operator, kind, "", targets))
    forward = Partitioning(ShipStrategy.FORWARD)
    output = ChainOutput(len(made) - 1, None, DataSetId("d" * 32), None, forward, kind, 100)
    spec = ChainSpec(tuple(chained), (ChainInput(0, BID),), (output,))
    chain = OperatorChain(spec, lambda: 0)
    chain.open(
        lambda spec, timer: OperatorContext("job", "Task", spec.name, spec.uid, 0, 1, 1, 0, timer)
    )
    return chain


def rate(made: Made, batch: ColumnBatch, *, in_kernels: bool) -> float:
    """Records/s of a chain, once it has seen some batches."""
    chain = chain_of(made)
    kind = chain.spec.outputs[0].element_type
    if not in_kernels:
        for node in chain.nodes:
            assert isinstance(node.operator, FunctionOperator)
            node.operator.kernels = None
            if node.operator.fused is not None:
                node.operator.fused.kernels = None

    def feed(times: int) -> None:
        for _ in range(times):
            for routed in chain.feed(batch):
                if routed is not None and isinstance(routed[1], RowBatch):
                    to_columns(routed[1], kind)

    times = max(1, RECORDS // 20 // len(batch))
    feed(times)
    times *= 100 if in_kernels and len(batch) > 512 else 10
    begin = time.process_time()
    feed(times)
    return times * len(batch) / (time.process_time() - begin)


def measure(_events: int | None, runs: int) -> list[Figure]:
    figures = []
    for count in BATCHES:
        batch = bids(count)
        for name, made in CASES.items():
            values: Sequence[float]
            pairs = [
                (rate(made, batch, in_kernels=True), rate(made, batch, in_kernels=False))
                for _ in range(runs)
            ]
            values, floors = zip(*pairs, strict=True)
            settings = {"records in a batch": count}
            figures.append(Figure(f"kernels {name}", values, "records/s", floors, settings))
    return figures
