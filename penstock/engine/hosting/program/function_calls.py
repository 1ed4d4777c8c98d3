"""Sets on the operators of a program what options say about all of them: how functions run, what sources read, what is copied."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.engine.model.graph.stream_graph import StreamGraph
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operator import Operator
from penstock.engine.runtime.operators.keyed import KeyCheckOperator, KeyTaker
from penstock.engine.runtime.operators.stateless import FunctionOperator
from penstock.engine.runtime.sources.operator import SourceOperator


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
