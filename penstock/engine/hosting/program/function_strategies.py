"""Reports before a job runs how each row function and key selector will run, and which fields its sources will parse.

Whether records come in columns follows from the graph: from sources, exchanges of a declared type, and operators on columns. A source
may still give rows, so a task decides with each batch (`engine/runtime/row_functions/runner.py`, `engine/runtime/task/fields_read.py`).

Sets on the operators of a program what options say about all of them: how functions run, what sources read, what is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from penstock.engine.model.graph.job_graph import (
    FieldsRead,
    FunctionStrategy,
    JobGraph,
    SelectorStrategy,
)
from penstock.engine.model.graph.stream_graph import StreamEdge, StreamGraph
from penstock.engine.model.options.task import TaskOptions
from penstock.engine.model.types import RowTypeInfo
from penstock.engine.runtime.codecs.convert import arrow_schema, is_columnar
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operator import Accepts, Operator
from penstock.engine.runtime.operators.keyed import (
    KeyCheckOperator,
    KeyedFilterOperator,
    KeyedFlatMapOperator,
    KeyedMapOperator,
    KeyTaker,
)
from penstock.engine.runtime.operators.process import KeyedProcessOperator
from penstock.engine.runtime.operators.stateless import FilterOperator, FunctionOperator
from penstock.engine.runtime.operators.windowed.base import WindowOperator
from penstock.engine.runtime.operators.windowed.functions import AggregateContents
from penstock.engine.runtime.operators.windowed.grid import GridWindowOperator
from penstock.engine.runtime.row_functions.plans import Strategy, fields_plan_of, plan_of
from penstock.engine.runtime.row_functions.runner import TURNED_OFF
from penstock.engine.runtime.sources.contract import Source
from penstock.engine.runtime.sources.operator import SourceOperator
from penstock.engine.runtime.task.fields_read import WholeRecords, places_read


def call_functions(graph: StreamGraph) -> None:
    """Let no function and no key selector of this program run without a call for each record."""
    for node in graph.nodes.values():
        if isinstance(node.operator, FunctionOperator):
            node.operator.functions_as_columns = False
        if isinstance(node.operator, KeyTaker):
            _call_selectors(node.operator.selections)
        elif isinstance(node.operator, KeyCheckOperator):
            _call_selectors((node.operator.keys,))
    partitionings = (edge.partitioning for edge in graph.edges if edge.partitioning is not None)
    _call_selectors(one.key_selector for one in partitionings)


def read_all_fields(graph: StreamGraph) -> None:
    """Let the sources of this program read fields that no function reads, too."""
    for node in graph.nodes.values():
        if isinstance(node.operator, SourceOperator):
            node.operator.source.reads_all_fields = True


def reuse_objects(graph: StreamGraph) -> None:
    """Let the operators of this program emit results as they are, not as copies."""
    for node in graph.nodes.values():
        if isinstance(node.operator, Operator):
            node.operator.reuses_objects = True


def _call_selectors(selections: Iterable[object]) -> None:
    for one in selections:
        if isinstance(one, KeySelection):
            one.computed.turn_off()


_KEYED: Final = frozenset({
    *(KeyedMapOperator, KeyedFilterOperator, KeyedFlatMapOperator, KeyedProcessOperator),
})
"""Those with one input. Functions of two inputs are called with records."""


def note_function_strategies(graph: StreamGraph, job_graph: JobGraph) -> None:
    """Write into the job graph how the functions of its operators will run."""
    for vertex in job_graph.vertices.values():
        chained = {info.node_id for info in vertex.operators}
        vertex.operators = tuple(
            replace(
                info,
                function=_strategy_of(graph, info.node_id, chained),
                selectors=_selectors_of(graph, info.node_id),
                reads=_fields_read_of(graph, info.node_id, chained),
            )
            for info in vertex.operators
        )


def report(job_graph: JobGraph) -> str:
    """A line for each row function and key selector: its operator, how it will run, and why not on columns."""
    lines = ["Row functions:"]
    for vertex in job_graph.vertices.values():
        for info in vertex.operators:
            lines += [
                f"  {info.name}, key selector ({one.defined_at}): {_text(one)}"
                for one in info.selectors
            ]
            if info.reads is not None:
                lines.append(f"  {info.name} ({info.defined_at}): {_fields_text(info.reads)}")
            if info.function is not None:
                lines.append(f"  {info.name} ({info.defined_at}): {_text(info.function)}")
    return "\n".join(lines if len(lines) > 1 else ["The program has no row functions."])


def _text(one: FunctionStrategy | SelectorStrategy) -> str:
    return f"{one.strategy} - {one.why}" if one.why else one.strategy


def _fields_text(one: FieldsRead) -> str:
    if one.why_all:
        return f"parses all {one.declared} fields - {one.why_all}"
    return f"parses {len(one.names)} of {one.declared} fields: {', '.join(one.names) or 'none'}"


def _strategy_of(graph: StreamGraph, node_id: int, chained: set[int]) -> FunctionStrategy | None:
    """How the function of an operator will run; None: it has none that may run in several ways."""
    operator = graph.nodes[node_id].operator
    if isinstance(operator, FunctionOperator) and operator.runs_on_columns:
        return _stateless(graph, node_id, operator, chained)
    if isinstance(operator, WindowOperator):
        if isinstance(operator.contents, AggregateContents):
            return _stateful(graph, node_id, operator)
    elif type(operator) in _KEYED:
        assert isinstance(operator, KeyTaker)
        return _stateful(graph, node_id, operator)
    return None


def _on_records(why: str) -> FunctionStrategy:
    return FunctionStrategy(Strategy.RECORDS.value, why)


def _stateless(
    graph: StreamGraph, node_id: int, operator: FunctionOperator, chained: set[int]
) -> FunctionStrategy:
    if not operator.functions_as_columns:
        return _on_records(TURNED_OFF)
    inputs = graph.inputs_of(node_id)
    for edge in inputs:
        giver = _giver_of_rows(graph, edge, chained)
        if giver is not None:
            return _on_records(f"its records come as Python objects from {giver}")
    kind: Any = _type_of(graph, inputs[0]) if inputs else None
    if not is_columnar(kind):
        return _on_records("its stream has no declared type: if columns come, they decide")
    plan = operator.row_function_class.plan_of(operator.function.call, arrow_schema(kind), kind)
    return FunctionStrategy(plan.strategy.value, plan.why_not)


def _giver_of_rows(graph: StreamGraph, edge: StreamEdge, chained: set[int]) -> str | None:
    """The operator of whose results the edge carries Python objects; None: it may carry columns."""
    giver = graph.nodes[edge.source]
    is_in_columns = giver.is_source or edge.source not in chained
    if isinstance(giver.coordinator, Source) and giver.coordinator.gives_rows:
        is_in_columns = edge.source not in chained
    accepts = giver.operator.accepts if isinstance(giver.operator, Operator) else Accepts.ANY
    if is_in_columns or accepts is Accepts.COLUMNS:
        return None
    if isinstance(giver.operator, FilterOperator):
        givers = (_giver_of_rows(graph, one, chained) for one in graph.inputs_of(edge.source))
        return next((one for one in givers if one is not None), None)
    return giver.name


def _stateful(graph: StreamGraph, node_id: int, operator: KeyTaker) -> FunctionStrategy:
    """Of a function that is always called, because it has state: with records, or with the fields that it reads."""
    if not operator.functions_as_columns:
        return _on_records(TURNED_OFF)
    if why := _needs_records(graph, node_id, operator):
        return _on_records(why)
    kind = _type_of(graph, graph.inputs_of(node_id)[0])
    if not is_columnar(kind):
        return _on_records("its stream has no declared type")
    plan = fields_plan_of(operator.called_with_records(), arrow_schema(kind), kind)
    if plan.strategy is not Strategy.FIELDS:
        return _on_records(plan.why_not)
    if operator.keys.columns is None and (
        _selector(operator.keys, kind).strategy != Strategy.COLUMNS.value
    ):
        return _on_records("its key selector takes records")
    return FunctionStrategy(Strategy.FIELDS.value, plan.why_not)


def _needs_records(graph: StreamGraph, node_id: int, operator: KeyTaker) -> str:
    """Why a function is called with records, whatever it reads; empty: it may get fields."""
    if isinstance(operator, KeyedFilterOperator):
        return "the records that it keeps go on"
    if not isinstance(operator, WindowOperator):
        return ""
    if not isinstance(operator, GridWindowOperator):
        return "windows of this kind add one record at a time"
    if node_id in graph.error_rules:
        return "records at which it raises are put aside"
    return "" if operator.is_given_fields() else "late records have a side output"


def _selectors_of(graph: StreamGraph, node_id: int) -> tuple[SelectorStrategy, ...]:
    """Of the keys of each input of an operator, where the program has a function for them."""
    operator = graph.nodes[node_id].operator
    if not isinstance(operator, KeyTaker):
        return ()
    kinds = {edge.input_index: _type_of(graph, edge) for edge in graph.inputs_of(node_id)}
    return tuple(
        replace(_selector(one, kinds.get(index)), defined_at=one.defined_at)
        for index, one in enumerate(operator.selections)
        if one.columns is None and one.defined_at
    )


def _selector(keys: KeySelection, kind: Any) -> SelectorStrategy:
    if not keys.computed.is_on:
        return SelectorStrategy(Strategy.RECORDS.value, TURNED_OFF)
    if not is_columnar(kind):
        return SelectorStrategy(Strategy.RECORDS.value, "its stream has no declared type")
    schema = arrow_schema(kind)
    if keys.reads_columns(schema.names, kind):
        return SelectorStrategy(Strategy.COLUMNS.value)
    plan = plan_of(keys.row_selector(), schema, kind)
    is_computed = plan.strategy is Strategy.COLUMNS
    return SelectorStrategy(
        (Strategy.COLUMNS if is_computed else Strategy.RECORDS).value, plan.why_not
    )


def _type_of(graph: StreamGraph, edge: StreamEdge) -> Any:
    source = graph.nodes[edge.source]
    return source.output_type if edge.tag is None else source.side_output_types.get(edge.tag)


# ---------------------------------------------------------------------- sources


def _fields_read_of(graph: StreamGraph, node_id: int, chained: set[int]) -> FieldsRead | None:
    """The fields that a source parses; None: it is no source that can leave out some. `chained`: the nodes of its vertex."""
    operator = graph.nodes[node_id].operator
    if not isinstance(operator, SourceOperator) or not operator.source.parses_fields:
        return None
    kind = operator.source.produced_type
    if not isinstance(kind, RowTypeInfo) or not is_columnar(kind):
        return None
    schema = arrow_schema(kind)
    why_all = ""
    read = set(range(len(schema)))
    if operator.source.reads_all_fields:
        why_all = TaskOptions.PARSE_UNREAD_FIELDS.key
    elif operator.watermark_strategy.assigner is not None:
        why_all = "a timestamp assigner takes the records"
    else:

        def takers_of(node_id: int) -> Iterator[tuple[int, str, object]]:
            edges = graph.outputs_of(node_id)
            if not edges:
                raise WholeRecords("nobody takes the records")
            for edge in edges:
                taker = graph.nodes[edge.target]
                if edge.target not in chained:
                    raise WholeRecords("records leave the task as columns")
                yield edge.target, taker.name, taker.operator
                if graph.nodes[edge.source].output_type != kind:
                    raise WholeRecords(f"{taker.name} gets another type than the source gives")

        try:
            read = places_read(node_id, takers_of, schema, kind)
        except WholeRecords as whole:
            why_all = str(whole)
    names = tuple(name for place, name in enumerate(schema.names) if place in read)
    return FieldsRead(names, len(schema), why_all)
