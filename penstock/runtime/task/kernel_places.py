"""Where in a chain functions run in kernels: where their records come as columns and their results are wanted as columns.

Results are wanted as columns by exchanges of a declared type, by operators on columns, and by functions in kernels. Where Python objects
are made of the results anyway, kernels gain nothing. What a filter keeps stays columns, so filters always may.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from penstock.model.graph.chain import ChainOutput, ChainSpec
from penstock.runtime.codecs.convert import arrow_schema, is_columnar
from penstock.runtime.operator import Accepts
from penstock.runtime.operators.sinks import SinkOperator
from penstock.runtime.operators.stateless import FilterOperator, FunctionOperator, MapOperator
from penstock.runtime.row_functions.kernels.on_batches import Kernels, kernel_of_plan
from penstock.runtime.task.chain_node import ChainNode


def run_in_kernels(
    nodes: Sequence[ChainNode], spec: ChainSpec, last_of: Mapping[int, ChainNode]
) -> None:
    """Let the functions of a chain run in kernels where that pays. `last_of`: as `fuse` returns it. The operators are open."""
    for index, node in enumerate(nodes):
        operator = _function_operator(node)
        if operator is None:
            continue
        name = (
            f"{node.spec.name} ({node.spec.defined_at})" if node.spec.defined_at else node.spec.name
        )
        call = operator.function.call
        if isinstance(operator, FilterOperator):
            operator.run_in_kernels(Kernels(partial(_kept, call), None, name, operator.complain))
        elif wants_columns(nodes, spec, node):
            kind: Any = node.spec.output_type
            operator.run_in_kernels(Kernels(partial(_mapped, call), kind, name, operator.complain))
        last, fused = last_of.get(index), operator.fused
        if last is not None and fused is not None and wants_columns(nodes, spec, last):
            kind = last.spec.output_type
            fused.run_in_kernels(Kernels(fused.outcome, kind, name, operator.complain))


def wants_columns(nodes: Sequence[ChainNode], spec: ChainSpec, node: ChainNode) -> bool:
    """Whether all that get the results of an operator are best given columns."""
    kind: Any = node.spec.output_type
    has_tagged = bool(node.tagged_outputs or node.tagged_targets)
    has_takers = bool(node.outputs or node.targets)
    if kind is None or has_tagged or not has_takers or not is_columnar(kind):
        return False
    if not all(_leaves_as_columns(spec.outputs[place], kind) for place in node.outputs):
        return False
    return all(
        target.element_type == kind
        and _takes_columns(nodes, spec, nodes[target.operator_index], kind)
        for target in node.targets
    )


def _leaves_as_columns(output: ChainOutput, kind: Any) -> bool:
    return output.data_set_id is not None and output.element_type == kind


def _takes_columns(nodes: Sequence[ChainNode], spec: ChainSpec, node: ChainNode, kind: Any) -> bool:
    operator = node.operator
    if operator.accepts is Accepts.COLUMNS:
        return True
    if operator.accepts is Accepts.ANY and isinstance(operator, SinkOperator):
        return True
    function = _function_operator(node)
    if function is None or function.row_function is None:
        return False
    plan = function.row_function.plan_for(arrow_schema(kind), kind)
    made: Any = None if isinstance(operator, FilterOperator) else node.spec.output_type
    if made is None and not isinstance(operator, FilterOperator):
        return False
    kernel, _ = kernel_of_plan(plan, made)
    return kernel is not None and wants_columns(nodes, spec, node)


def _function_operator(node: ChainNode) -> FunctionOperator | None:
    """The operator, if its function may run in kernels."""
    operator = node.operator
    if type(operator) not in {MapOperator, FilterOperator}:
        return None
    if not isinstance(operator, FunctionOperator) or not operator.functions_as_columns:
        return None
    return None if getattr(operator, "side_tags", ()) else operator


def _kept(call: Callable[[Any], Any], record: Any) -> tuple[bool, Any]:
    return bool(call(record)), None


def _mapped(call: Callable[[Any], Any], record: Any) -> tuple[bool, Any]:
    return True, call(record)
