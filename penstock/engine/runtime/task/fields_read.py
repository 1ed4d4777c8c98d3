"""Chooses the fields of its records that a source reads: those that the functions next to it in its chain read.

Only where all that gets the source's records are functions that take Python values. Columns that leave the task, or that an operator
takes as columns, are best read as columns. Source: projection push-down, as in Spark's and Flink's SQL; here for plain functions, by
their bytecode.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.engine.model.types import RowTypeInfo
from penstock.engine.runtime.codecs.convert import arrow_schema, is_columnar
from penstock.engine.runtime.operator import Accepts
from penstock.engine.runtime.operators.sinks import SinkOperator
from penstock.engine.runtime.operators.stateless import FilterOperator, FunctionOperator
from penstock.engine.runtime.row_functions.plans import Strategy
from penstock.engine.runtime.sources.operator import SourceOperator
from penstock.engine.runtime.task.chain_node import ChainNode


class _Others(Exception):
    """Somebody takes the records otherwise than as Python values."""


def fields_read(nodes: Sequence[ChainNode]) -> tuple[str, ...] | None:
    """The fields that a source at the head of a chain has to read; None: whole records, as columns if it can. The operators are open."""
    head = nodes[0].operator if nodes else None
    if not isinstance(head, SourceOperator):
        return None
    kind = head.source.produced_type
    if not isinstance(kind, RowTypeInfo) or not is_columnar(kind):
        return None
    schema = arrow_schema(kind)
    everything = set(range(len(schema)))
    strategy = head.watermark_strategy
    if strategy.assigner is not None and strategy.takes_any_batch:
        return None  # It takes timestamps from a column.
    try:
        read = (
            _read_after(nodes, nodes[0], schema, kind) if strategy.assigner is None else everything
        )
    except _Others:
        return None
    if head.source.reads_all_fields:
        read = everything
    return tuple(name for place, name in enumerate(schema.names) if place in read)


def _read_after(
    nodes: Sequence[ChainNode], node: ChainNode, schema: pa.Schema, kind: RowTypeInfo
) -> set[int]:
    """The fields that those read who get this operator's records. Raises: _Others."""
    if node.outputs or not node.targets:
        raise _Others
    read: set[int] = set()
    for target in node.targets:
        read |= _read_in(nodes, nodes[target.operator_index], schema, kind)
    return read


def _read_in(
    nodes: Sequence[ChainNode], node: ChainNode, schema: pa.Schema, kind: RowTypeInfo
) -> set[int]:
    operator = node.operator
    everything = set(range(len(schema)))
    if list(node.input_types) != [kind]:
        raise _Others  # The program declares another type than the source.
    if isinstance(operator, SinkOperator) and operator.accepts is Accepts.ROWS:
        return everything
    if not isinstance(operator, FunctionOperator) or not operator.runs_on_columns:
        raise _Others
    function = operator.row_function
    assert function is not None, "its operator is open"
    plan = function.plan_for(schema, kind)
    if plan.strategy is Strategy.RECORDS:
        return everything
    read = set(plan.places)
    if isinstance(operator, FilterOperator):
        read |= _read_after(nodes, node, schema, kind)
    return read
