"""Tells before a job runs how each row function will run, and why not on columns.

Whether records come in columns is told from the graph: from sources, exchanges of a declared type, and operators on columns. A source
may still give rows, and a sample may differ, so a task decides with each batch (`runtime/row_functions/runner.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.hosting.program.keyed_ways import keyed_way, selector_ways, type_of
from penstock.hosting.program.source_fields import fields_read_of, makes_objects
from penstock.model.graph.job_graph import FieldsRead, FunctionWay, JobGraph, SelectorWay
from penstock.model.graph.stream_graph import StreamEdge, StreamGraph
from penstock.runtime.codecs.convert import arrow_schema, is_columnar
from penstock.runtime.operator import Accepts, Operator
from penstock.runtime.operators.sinks import SinkOperator
from penstock.runtime.operators.stateless import (
    FilterOperator,
    FlatMapOperator,
    FunctionOperator,
    MapOperator,
)
from penstock.runtime.row_functions.inlining import inlined
from penstock.runtime.row_functions.kernels.on_batches import kernel_of_plan
from penstock.runtime.row_functions.plans import (
    Plan,
    Stage,
    Way,
    fused_plan,
    plan_of,
)
from penstock.runtime.row_functions.refusals import Refused
from penstock.runtime.row_functions.rendering import TooLarge
from penstock.runtime.row_functions.runner import TURNED_OFF
from penstock.runtime.row_functions.trees import Kind
from penstock.runtime.sources.contract import Source
from penstock.runtime.watermarks.strategy import WatermarkStrategy


def note_function_ways(graph: StreamGraph, job_graph: JobGraph) -> None:
    """Write into the job graph how the functions of its operators will run."""
    for vertex in job_graph.vertices.values():
        chained = {info.node_id for info in vertex.operators}
        vertex.operators = tuple(
            replace(
                info,
                function=_way_of(graph, info.node_id, chained),
                selectors=selector_ways(graph, info.node_id),
                reads=fields_read_of(graph, info.node_id, chained),
            )
            for info in vertex.operators
        )


def told(job_graph: JobGraph) -> str:
    """A line for each row function and key selector: its operator, how it will run, and why not on columns."""
    lines = ["Row functions:"]
    for vertex in job_graph.vertices.values():
        for info in vertex.operators:
            lines += [
                f"  {info.name}, key selector ({one.defined_at}): {_told(one)}"
                for one in info.selectors
            ]
            if info.reads is not None:
                lines.append(f"  {info.name} ({info.defined_at}): {_told_fields(info.reads)}")
            if info.function is not None:
                lines.append(f"  {info.name} ({info.defined_at}): {_told(info.function)}")
    return "\n".join(lines if len(lines) > 1 else ["The program has no row functions."])


def _told(one: FunctionWay | SelectorWay) -> str:
    if isinstance(one, FunctionWay) and one.why_no_kernels:
        return f"{one.way}, not kernels - {one.why_no_kernels}"
    if isinstance(one, FunctionWay) and one.why_no_partials:
        return f"{one.way}, not partials - {one.why_no_partials}"
    return f"{one.way} - {one.why}" if one.why else one.way


def _told_fields(one: FieldsRead) -> str:
    if one.why_all:
        return f"parses all {one.declared} fields - {one.why_all}"
    return f"parses {len(one.names)} of {one.declared} fields: {', '.join(one.names) or 'none'}"


def _way_of(graph: StreamGraph, node_id: int, chained: set[int]) -> FunctionWay | None:
    operator = graph.nodes[node_id].operator
    if isinstance(operator, FunctionOperator) and operator.runs_on_columns:
        return _stateless_way(graph, node_id, operator, chained)
    return keyed_way(graph, node_id)


def _stateless_way(
    graph: StreamGraph, node_id: int, operator: FunctionOperator, chained: set[int]
) -> FunctionWay:
    if not operator.functions_as_columns:
        return FunctionWay(Way.RECORDS.value, TURNED_OFF)
    kinds: list[Any] = []
    for edge in graph.edges:
        if edge.target == node_id:
            giver = _giver_of_rows_now(graph, edge, chained)
            if giver is not None:
                return _way_behind(graph, node_id, giver, chained)
            kinds.append(type_of(graph, edge))
    kind: Any = kinds[0] if kinds else None
    if not is_columnar(kind):
        why = "its stream has no declared type: if columns come, they decide"
        return _on_objects(operator, why)
    plan = operator.row_function_class.plan_of(operator.function.call, arrow_schema(kind), kind)
    if plan.way is Way.COLUMNS:
        run = _longest_run(graph, node_id, chained) or _Run([node_id], plan)
        return _in_kernels(graph, run, chained)
    is_lent = plan.way is Way.FIELDS
    why = plan.why_not
    return FunctionWay(Way.FIELDS.value, why) if is_lent else _on_objects(operator, why)


def _way_behind(graph: StreamGraph, node_id: int, giver: str, chained: set[int]) -> FunctionWay:
    """How a function runs whose records come as Python objects, unless it runs as one with those before it."""
    run = _run_with_those_before(graph, node_id, chained)
    if run is None:
        why = f"its records come as Python objects from {giver}"
        return _on_objects(graph.nodes[node_id].operator, why)
    way = _in_kernels(graph, _longest_run(graph, run.nodes[0], chained) or run, chained)
    filters = sum(isinstance(graph.nodes[one].operator, FilterOperator) for one in run.nodes)
    if filters and way.way != Way.KERNELS.value and _have_timestamps(graph, run.nodes[0]):
        why = f"with timestamps it does not run as one with {giver}"
        return _on_objects(graph.nodes[node_id].operator, why)
    return way


def _have_timestamps(graph: StreamGraph, node_id: int) -> bool:
    """Whether the program gives timestamps to the records that come to an operator."""
    left, seen = [node_id], {node_id}
    while left:
        at = left.pop()
        operator: Any = graph.nodes[at].operator
        strategy = getattr(operator, "watermark_strategy", None) or getattr(
            operator, "strategy", None
        )
        if isinstance(strategy, WatermarkStrategy) and (strategy.assigner or strategy.generates):
            return True
        givers = {edge.source for edge in graph.inputs_of(at)} - seen
        seen |= givers
        left += givers
    return False


def _on_objects(operator: object, why: str) -> FunctionWay:
    """How a function runs on Python objects. `why`: why not on columns."""
    if isinstance(operator, FunctionOperator) and type(operator) in {MapOperator, FilterOperator}:
        made = inlined(operator.function.call)
        # Results that can be changed are copied one by one, so the function is called.
        is_copied = isinstance(operator, MapOperator) and bool(made.results & _CHANGEABLE)
        if made.expression is not None and not is_copied:
            return FunctionWay(Way.INLINE.value, why)
    return FunctionWay(Way.RECORDS.value, why)


_CHANGEABLE: Final = frozenset({Kind.ROW, Kind.LIST, Kind.COLUMN})
"""What may be changed. COLUMN is the record itself, which may be a Row."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Functions that run as one: the operators' nodes, and their plan."""

    nodes: list[int]
    plan: Plan


def _longest_run(graph: StreamGraph, node_id: int, chained: set[int]) -> _Run | None:
    """The run that begins at an operator; None: it runs alone."""
    found, at = None, node_id
    while True:
        behind = [one for one in graph.edges if one.source == at and one.target in chained]
        if len(behind) != 1:
            return found
        at = behind[0].target
        run = _run_with_those_before(graph, at, chained)
        if run is None or run.nodes[0] != node_id:
            return found
        found = run


def _in_kernels(graph: StreamGraph, run: _Run, chained: set[int]) -> FunctionWay:
    """Whether functions that run on columns run in kernels. As `runtime/task/kernel_places.py` decides it."""
    node_id = run.nodes[-1]
    node = graph.nodes[node_id]
    is_filter = len(run.nodes) == 1 and isinstance(node.operator, FilterOperator)
    kind: Any = None if is_filter else _type_of_results(graph, node_id)
    if isinstance(node.operator, FlatMapOperator):
        why = "a flat_map has none"
    elif not is_filter and kind is None:
        why = "its results have no declared type"
    elif _are_objects(graph, run.nodes[0], chained):
        why = "the source makes Python objects, and no columns"
    else:
        _, why = kernel_of_plan(run.plan, kind)
        if not why and not is_filter:
            why = _not_as_columns(graph, node_id, kind, chained)
    if why:
        return FunctionWay(Way.COLUMNS.value, why_no_kernels=why)
    return FunctionWay(Way.KERNELS.value)


def _are_objects(graph: StreamGraph, node_id: int, chained: set[int]) -> bool:
    """Whether an operator's records are Python objects that a source of its vertex has decoded. Filters give them on as they are."""
    givers = [edge.source for edge in graph.edges if edge.target == node_id]
    return any(
        _are_objects(graph, one, chained)
        if isinstance(graph.nodes[one].operator, FilterOperator)
        else makes_objects(graph, one, chained)
        for one in givers
        if one in chained
    )


def _type_of_results(graph: StreamGraph, node_id: int) -> Any:
    """The declared type; of what a filter keeps, that of its records."""
    kind: Any = graph.nodes[node_id].output_type
    return kind if is_columnar(kind) else None


def _not_as_columns(graph: StreamGraph, node_id: int, kind: Any, chained: set[int]) -> str:
    """Why the results of an operator are not wanted as columns; empty: they are."""
    takers = [one for one in graph.edges if one.source == node_id]
    for edge in takers:
        taker = graph.nodes[edge.target]
        operator = taker.operator
        accepts = operator.accepts if isinstance(operator, Operator) else Accepts.ROWS
        if edge.tag is not None:
            return "it has side outputs"
        is_sink = accepts is Accepts.ANY and isinstance(operator, SinkOperator)
        if edge.target not in chained or accepts is Accepts.COLUMNS or is_sink:
            continue
        why = f"{taker.name} takes its results as Python objects"
        if type(operator) not in {MapOperator, FilterOperator}:
            return why
        assert isinstance(operator, FunctionOperator)
        made = (
            None if isinstance(operator, FilterOperator) else _type_of_results(graph, edge.target)
        )
        if made is None and not isinstance(operator, FilterOperator):
            return why
        plan = plan_of(operator.function.call, arrow_schema(kind), kind)
        kernel, _ = kernel_of_plan(plan, made)
        if kernel is None or _not_as_columns(graph, edge.target, made or kind, chained):
            return why
    return "" if takers else "nobody takes its results"


def _run_with_those_before(graph: StreamGraph, node_id: int, chained: set[int]) -> _Run | None:
    """The functions from the last columns on to this one, if they run as one loop. As `runtime/task/fusing.py` decides it."""
    stages: list[Stage] = []
    nodes: list[int] = []
    while True:
        node = graph.nodes[node_id]
        operator = node.operator
        if not isinstance(operator, MapOperator | FilterOperator) or node_id in graph.error_rules:
            return None
        name, keeps = node.name, isinstance(operator, FilterOperator)
        nodes.insert(0, node_id)
        stages.insert(0, Stage(operator.function.call, keeps, name))
        into = [edge for edge in graph.edges if edge.target == node_id]
        if len(into) != 1 or sum(stage.keeps for stage in stages) > 1:
            return None
        edge, kind = into[0], type_of(graph, into[0])
        if _giver_of_rows(graph, edge, chained) is None:
            break
        readers = [one for one in graph.edges if one.source == edge.source]
        is_kept = isinstance(graph.nodes[edge.source].operator, FilterOperator)
        if len(readers) != 1 or not (kind is None or is_kept):
            return None
        node_id = edge.source
    if not is_columnar(kind):
        return None
    try:
        plan = fused_plan(stages, arrow_schema(kind), kind)
    except (Refused, TooLarge):
        return None
    return None if plan.is_shared else _Run(nodes, plan)


def _giver_of_rows_now(graph: StreamGraph, edge: StreamEdge, chained: set[int]) -> str | None:
    """As `_giver_of_rows`, where functions in kernels give columns."""
    found = _giver_of_rows(graph, edge, chained)
    giver = graph.nodes[edge.source]
    if found is None:
        return None
    if isinstance(giver.operator, FilterOperator):
        before = [one for one in graph.edges if one.target == edge.source]
        givers = (_giver_of_rows_now(graph, one, chained) for one in before)
        return next((one for one in givers if one is not None), None)
    if not isinstance(giver.operator, MapOperator) or not is_columnar(type_of(graph, edge)):
        return found
    way = _way_of(graph, edge.source, chained)
    return None if way is not None and way.way == Way.KERNELS.value else found


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
        before = [one for one in graph.edges if one.target == edge.source]
        givers = (_giver_of_rows(graph, one, chained) for one in before)
        return next((one for one in givers if one is not None), None)
    return giver.name
