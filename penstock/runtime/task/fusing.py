"""Fusing: row functions of operators that follow each other in a chain run as one loop over columns, without records between them.

Each operator keeps its counts. Where one of them raises, or the functions are of another kind, all run one by one. Source: Tuplex (SIGMOD
2021); Flink chains operators, and calls one after the other for each record.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.runtime.operators.stateless import FilterOperator, FunctionOperator, MapOperator
from penstock.runtime.row_functions.plans import Stage
from penstock.runtime.row_functions.runner import FusedColumns, FusedFunctions, FusedRows
from penstock.runtime.task.chain_node import ChainNode


def fuse(nodes: Sequence[ChainNode]) -> dict[int, ChainNode]:
    """Let the operators of a chain run their functions as one where they can. They are open.

    Returns: by the index of the first of several operators that run as one, the last of them.
    """
    last_of: dict[int, ChainNode] = {}
    taken: set[int] = set()
    for index in range(len(nodes)):
        if index in taken:
            continue
        places = _run_from(nodes, index)
        if len(places) < 2:
            continue
        taken.update(places)
        operators = [_function_operator(nodes[place]) for place in places]
        stages = [
            Stage(one.function.call, isinstance(one, FilterOperator), nodes[place].spec.name)
            for one, place in zip(operators, places, strict=True)
            if one is not None
        ]
        head = operators[0]
        assert head is not None, "a run consists of function operators"
        names = ", ".join(stage.name for stage in stages)
        head.run_fused(FusedFunctions(stages, names))
        last_of[index] = nodes[places[-1]]
    return last_of


def passed(
    nodes: Sequence[ChainNode], head: ChainNode, made: FusedRows | FusedColumns
) -> ChainNode:
    """Count what went through the operators that ran as one. Returns the last of them. The chain has counted what went into the first."""
    node = head
    for count in made.counts[:-1]:
        node.counts.records_out += count
        node = nodes[node.targets[0].operator_index]
        node.counts.records_in += count
    return node


def _run_from(nodes: Sequence[ChainNode], index: int) -> list[int]:
    """The places of the operators from this one on that may run as one. At most one of them filters, so that counts are known."""
    places: list[int] = []
    filters = 0
    while True:
        node = nodes[index]
        operator = _function_operator(node)
        if operator is None:
            break
        filters += isinstance(operator, FilterOperator)
        if filters > 1:
            break
        places.append(index)
        is_last = node.outputs or node.tagged_outputs or node.tagged_targets
        if is_last or len(node.targets) != 1:
            break
        # Results of a declared type are checked and converted between two operators. What a filter keeps is not.
        if node.targets[0].element_type is not None and not operator.keeps_records:
            break
        index = node.targets[0].operator_index
    return places


def _function_operator(node: ChainNode) -> FunctionOperator | None:
    """The operator, if its function may run as one with others."""
    operator = node.operator
    is_of_kind = type(operator) in {MapOperator, FilterOperator}
    if not is_of_kind or not isinstance(operator, FunctionOperator):
        return None
    has_more = node.poison is not None or bool(getattr(operator, "side_tags", ()))
    return None if has_more or not operator.functions_as_columns else operator
