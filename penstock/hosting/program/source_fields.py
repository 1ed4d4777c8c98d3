"""Tells before a job runs which fields of its records a source will parse. As `runtime/task/fields_read.py` decides it in a task."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.model.graph.job_graph import FieldsRead
from penstock.model.graph.stream_graph import StreamGraph
from penstock.model.options.task import TaskOptions
from penstock.model.types import RowTypeInfo
from penstock.runtime.codecs.convert import arrow_schema, is_columnar
from penstock.runtime.operator import Accepts
from penstock.runtime.operators.sinks import SinkOperator
from penstock.runtime.operators.stateless import FilterOperator, FunctionOperator
from penstock.runtime.row_functions.plans import Way
from penstock.runtime.sources.operator import SourceOperator


class _Others(Exception):
    """Somebody takes the records otherwise than as Python values."""


def fields_read_of(graph: StreamGraph, node_id: int, chained: set[int]) -> FieldsRead | None:
    """The fields that a source parses; None: it is no source that can leave out some. `chained`: the nodes of its vertex."""
    operator = graph.nodes[node_id].operator
    if not isinstance(operator, SourceOperator) or not operator.source.parses_fields:
        return None
    kind = operator.source.produced_type
    if not isinstance(kind, RowTypeInfo) or not is_columnar(kind):
        return None
    schema = arrow_schema(kind)
    assigner = operator.watermark_strategy.assigner
    if operator.source.reads_all_fields:
        return FieldsRead(tuple(schema.names), len(schema), TaskOptions.PARSE_UNREAD_FIELDS.key)
    if assigner is not None:
        return FieldsRead(
            tuple(schema.names), len(schema), "a timestamp assigner takes the records"
        )
    try:
        read = _read_behind(graph, node_id, chained, schema, kind)
    except _Others as others:
        return FieldsRead(tuple(schema.names), len(schema), str(others))
    names = tuple(name for place, name in enumerate(schema.names) if place in read)
    return FieldsRead(names, len(schema))


def makes_objects(graph: StreamGraph, node_id: int, chained: set[int]) -> bool:
    """Whether a source makes Python objects of its records for the functions of its vertex, and no columns. `chained`: as `fields_read_of`."""
    read = fields_read_of(graph, node_id, chained)
    if read is None:
        return False
    operator: Any = graph.nodes[node_id].operator
    schema = arrow_schema(operator.source.produced_type)
    try:
        _read_behind(graph, node_id, chained, schema, operator.source.produced_type)
    except _Others:
        return False
    strategy = operator.watermark_strategy
    takes_columns = strategy.assigner is not None and strategy.takes_any_batch
    return not takes_columns and operator.source.makes_objects(read.names)


def _read_behind(
    graph: StreamGraph, node_id: int, chained: set[int], schema: pa.Schema, kind: RowTypeInfo
) -> set[int]:
    """The places of the fields that those read who get this operator's records. Raises: _Others."""
    edges = graph.outputs_of(node_id)
    if not edges:
        raise _Others("nobody takes the records")
    read: set[int] = set()
    for edge in edges:
        taker = graph.nodes[edge.target]
        if edge.target not in chained:
            raise _Others("records leave the task as columns")
        read |= _read_in(graph, edge.target, chained, schema, kind)
        if graph.nodes[edge.source].output_type != kind:
            raise _Others(f"{taker.name} gets another type than the source gives")
    return read


def _read_in(
    graph: StreamGraph, node_id: int, chained: set[int], schema: pa.Schema, kind: RowTypeInfo
) -> set[int]:
    node = graph.nodes[node_id]
    operator: Any = node.operator
    everything = set(range(len(schema)))
    if isinstance(operator, SinkOperator) and operator.accepts is Accepts.ROWS:
        return everything
    if not isinstance(operator, FunctionOperator) or not operator.runs_on_columns:
        raise _Others(f"{node.name} takes whole records")
    if not operator.functions_as_columns:
        return everything
    plan = operator.row_function_class.plan_of(operator.function.call, schema, kind)
    if plan.way is Way.RECORDS:
        return everything
    read = set(plan.places)
    if isinstance(operator, FilterOperator):
        read |= _read_behind(graph, node_id, chained, schema, kind)
    return read
