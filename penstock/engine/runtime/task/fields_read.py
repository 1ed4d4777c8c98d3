"""Chooses the fields of its records that a source reads: those that the functions next to it in its chain read.

Only where all that gets the source's records are functions that take Python values. Columns that leave the task, or that an operator
takes as columns, are best read as columns. The rule is `places_read`: a task follows it through its chain, and the driver through the
program's graph, before the job runs. Source: projection push-down, as in Spark's and Flink's SQL; here for plain functions, by their
bytecode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from penstock.engine.model.types import RowTypeInfo
from penstock.engine.runtime.codecs.convert import arrow_schema, is_columnar
from penstock.engine.runtime.operator import Accepts
from penstock.engine.runtime.operators.sinks import SinkOperator
from penstock.engine.runtime.operators.stateless import FilterOperator, FunctionOperator
from penstock.engine.runtime.row_functions.plans import Strategy
from penstock.engine.runtime.sources.operator import SourceOperator
from penstock.engine.runtime.task.chain_node import ChainNode

N = TypeVar("N")


class WholeRecords(Exception):
    """Somebody takes the records otherwise than as Python values: who."""


def places_read(
    node: N,
    takers_of: Callable[[N], Iterable[tuple[N, str, object]]],
    schema: pa.Schema,
    kind: RowTypeInfo,
) -> set[int]:
    """The places of the fields that those read who get the records of `node`. Raises: WholeRecords.

    `takers_of`: those who get a node's records, with their names and operators; raises it, too.
    """
    everything = set(range(len(schema)))
    read: set[int] = set()
    for taker, name, operator in takers_of(node):
        if isinstance(operator, SinkOperator) and operator.accepts is Accepts.ROWS:
            read |= everything
            continue
        if not isinstance(operator, FunctionOperator) or not operator.runs_on_columns:
            raise WholeRecords(f"{name} takes whole records")
        function = operator.row_function or operator.row_function_class(
            operator.function.call, operator.functions_as_columns
        )
        plan = function.plan_for(schema, kind)
        if plan.strategy is Strategy.RECORDS:
            read |= everything
            continue
        read.update(plan.places)
        if isinstance(operator, FilterOperator):
            read |= places_read(taker, takers_of, schema, kind)
    return read


def fields_read(nodes: Sequence[ChainNode]) -> tuple[str, ...] | None:
    """The fields that a source at the head of a chain has to read; None: whole records, as columns if it can. The operators are open."""
    head = nodes[0].operator if nodes else None
    if not isinstance(head, SourceOperator):
        return None
    kind = head.source.produced_type
    if not isinstance(kind, RowTypeInfo) or not is_columnar(kind):
        return None
    schema = arrow_schema(kind)
    strategy = head.watermark_strategy
    if strategy.assigner is not None and strategy.takes_any_batch:
        return None  # It takes timestamps from a column.

    def takers_of(node: ChainNode) -> Iterator[tuple[ChainNode, str, object]]:
        if node.outputs or not node.targets:
            raise WholeRecords("records leave the task")
        for target in node.targets:
            taker = nodes[target.operator_index]
            if list(taker.input_types) != [kind]:
                raise WholeRecords("the program declares another type than the source")
            yield taker, taker.spec.name, taker.operator

    read = set(range(len(schema)))
    try:
        if strategy.assigner is None:
            read_after = places_read(nodes[0], takers_of, schema, kind)
            read = read if head.source.reads_all_fields else read_after
    except WholeRecords:
        return None
    return tuple(name for place, name in enumerate(schema.names) if place in read)
