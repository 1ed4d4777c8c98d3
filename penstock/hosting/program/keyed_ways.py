"""How key selectors, reduces, aggregates and functions with state will run. See `function_ways`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from penstock.model.graph.job_graph import FunctionWay, SelectorWay
from penstock.model.graph.stream_graph import StreamEdge, StreamGraph
from penstock.runtime.codecs.convert import arrow_schema, is_columnar
from penstock.runtime.keys import KeySelection
from penstock.runtime.operators.keyed import (
    KeyedFilterOperator,
    KeyedFlatMapOperator,
    KeyedMapOperator,
    KeyTaker,
)
from penstock.runtime.operators.process import KeyedProcessOperator
from penstock.runtime.operators.reduce import Aggregate, ReduceOperator
from penstock.runtime.operators.windowed.base import WindowOperator
from penstock.runtime.operators.windowed.combining_windows import CombiningWindows
from penstock.runtime.operators.windowed.functions import AggregateContents, ReduceContents
from penstock.runtime.operators.windowed.grid import GridWindowOperator
from penstock.runtime.operators.windowed.records import RecordWindowOperator
from penstock.runtime.row_functions.additions import why_not_added
from penstock.runtime.row_functions.inlining import inlined
from penstock.runtime.row_functions.partials import combining_of
from penstock.runtime.row_functions.plans import Way, fields_plan_of, plan_of
from penstock.runtime.row_functions.runner import TURNED_OFF
from penstock.runtime.windowing.assigners import _TimeGrid

_KEYED: Final = frozenset({
    *(KeyedMapOperator, KeyedFilterOperator, KeyedFlatMapOperator, KeyedProcessOperator),
})
"""Those with one input. Functions of two inputs are called with records."""


def keyed_way(graph: StreamGraph, node_id: int) -> FunctionWay | None:
    """How the function of an operator with keys will run; None: nothing is told of it."""
    operator = graph.nodes[node_id].operator
    if isinstance(operator, CombiningWindows) and isinstance(operator.contents, AggregateContents):
        return _aggregate_way(graph, node_id, operator, operator.contents)
    if isinstance(operator, KeyTaker) and _has_state(operator):
        return _stateful_way(graph, node_id, operator)
    if isinstance(operator, ReduceOperator) or (
        isinstance(operator, WindowOperator) and isinstance(operator.contents, ReduceContents)
    ):
        return _reduce_way(graph, node_id, operator)
    return None


def selector_ways(graph: StreamGraph, node_id: int) -> tuple[SelectorWay, ...]:
    """Of the keys of each input of an operator, where the program has a function for them."""
    operator = graph.nodes[node_id].operator
    if not isinstance(operator, KeyTaker):
        return ()
    kinds = {
        edge.input_index: type_of(graph, edge) for edge in graph.edges if edge.target == node_id
    }
    return tuple(
        replace(_selector_way(one, kinds.get(index)), defined_at=one.defined_at)
        for index, one in enumerate(operator.selections)
        if one.columns is None and one.defined_at
    )


def _selector_way(keys: KeySelection, kind: Any) -> SelectorWay:
    selector = keys.row_selector()
    if not keys.computed.is_on:
        return SelectorWay(Way.RECORDS.value, TURNED_OFF)
    if is_columnar(kind):
        schema = arrow_schema(kind)
        if keys.reads_columns(schema.names, kind):
            return SelectorWay(Way.COLUMNS.value)
        if plan_of(selector, schema, kind).way is Way.COLUMNS:
            return SelectorWay(Way.COLUMNS.value)
    made = inlined(selector)
    way = Way.RECORDS if made.expression is None else Way.INLINE
    return SelectorWay(way.value, made.why_not)


def _stateful_way(graph: StreamGraph, node_id: int, operator: KeyTaker) -> FunctionWay:
    """Of a function that is always called, because it has state: with records, or with the fields that it reads."""
    if not operator.functions_as_columns:
        return FunctionWay(Way.RECORDS.value, TURNED_OFF)
    if why := _needs_records(graph, node_id, operator):
        return FunctionWay(Way.RECORDS.value, why)
    kind = type_of(graph, graph.inputs_of(node_id)[0])
    if not is_columnar(kind):
        return FunctionWay(Way.RECORDS.value, "its stream has no declared type")
    plan = fields_plan_of(operator.called_with_records(), arrow_schema(kind), kind)
    if plan.way is not Way.FIELDS:
        return FunctionWay(Way.RECORDS.value, plan.why_not)
    if operator.keys.columns is None and (
        _selector_way(operator.keys, kind).way != Way.COLUMNS.value
    ):
        return FunctionWay(Way.RECORDS.value, "its key selector takes records")
    return FunctionWay(Way.FIELDS.value, plan.why_not)


def _needs_records(graph: StreamGraph, node_id: int, operator: KeyTaker) -> str:
    """Why a function is called with records, whatever it reads; empty: it may get fields."""
    if isinstance(operator, KeyedFilterOperator):
        return "the records that it keeps go on"
    if not isinstance(operator, WindowOperator):
        return ""
    if not isinstance(operator, CombiningWindows):
        return "windows of this kind add one record at a time"
    if node_id in graph.error_rules:
        return "records at which it raises are put aside"
    return "" if operator.is_given_fields() else "late records have a side output"


def _has_state(operator: KeyTaker) -> bool:
    """Whether its function is one that is always called."""
    if isinstance(operator, WindowOperator):
        return isinstance(operator.contents, AggregateContents)
    return type(operator) in _KEYED


def _aggregate_way(
    graph: StreamGraph, node_id: int, operator: CombiningWindows, aggregate: AggregateContents
) -> FunctionWay:
    """Of an aggregate function, which is called if it does not add the records of a key at once."""
    called = _stateful_way(graph, node_id, operator)
    if not operator.functions_as_columns:
        return called
    if node_id in graph.error_rules:
        why = "records at which it raises are put aside"
    else:
        owner, grid = aggregate.function.owner, operator.assigner
        assert isinstance(grid, _TimeGrid)
        overlaps = grid.size > grid.slide
        why = why_not_added(owner.create_accumulator, owner.add, has_overlaps=overlaps)
    if not why:
        return FunctionWay(Way.PARTIALS.value)
    return replace(called, why_no_partials=why) if called.way == Way.FIELDS.value else called


def _reduce_way(
    graph: StreamGraph, node_id: int, operator: ReduceOperator | WindowOperator
) -> FunctionWay | None:
    """None: it has no reduce function of the user."""
    function = (
        operator.function if isinstance(operator, ReduceOperator) else operator.contents.function
    )
    if function is None or isinstance(function.owner, Aggregate):
        return None
    if isinstance(operator, RecordWindowOperator):
        return FunctionWay(Way.RECORDS.value, "windows of this kind add one record at a time")
    made = inlined(function.call, 2, is_on=operator.functions_as_columns)
    if made.expression is None:
        return FunctionWay(Way.RECORDS.value, made.why_not)
    why = _not_combined(graph, node_id, operator, function.call)
    return FunctionWay((Way.INLINE if why else Way.PARTIALS).value, why_no_partials=why)


def _not_combined(graph: StreamGraph, node_id: int, operator: KeyTaker, call: Any) -> str:
    """Why a reduce does not combine the records of a key in columns; empty: it does. As the operators decide it."""
    if isinstance(operator, ReduceOperator) and not graph.is_batch:
        return "each record has a result of its own"
    if isinstance(operator, GridWindowOperator) and graph.is_batch:
        return "windows of a BATCH job get one key after the other"
    edge = graph.inputs_of(node_id)[0]
    kind = type_of(graph, edge)
    combining = combining_of(call, kind)
    if combining.why_not:
        return combining.why_not
    if operator.keys.places_in(arrow_schema(kind).names, kind) is None:
        return "its key is no field"
    return ""


def type_of(graph: StreamGraph, edge: StreamEdge) -> Any:
    source = graph.nodes[edge.source]
    return source.output_type if edge.tag is None else source.side_output_types.get(edge.tag)
