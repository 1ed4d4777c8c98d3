"""Requests for the side outputs of an operator. Source: pyflink.datastream.data_stream.DataStream.get_side_output."""

from __future__ import annotations

from typing import Any

from penstock.datastream.building.checks import built
from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.stream_graph import ErrorRule, StreamNode


def request_side_output(
    node: StreamNode, rule: ErrorRule | None, tag_id: str, type_info: object
) -> None:
    """Notes on the operator that this tag is read, with its type. `rule`: what the operator does with poison records. Raises: GraphError: it is read with another type
    already.
    """
    former = node.side_output_types.setdefault(tag_id, type_info)
    if former != type_info:
        raise GraphError(
            f"operator '{node.name}' (built at {node.defined_at}) has a side output {tag_id!r} of "
            f"type {former} already, got {type_info}. Give each of the two OutputTags an id of its "
            f"own. {built('get_side_output')}."
        )
    if rule is not None and rule.tag == tag_id:
        return
    operator: Any = node.operator
    requested = getattr(operator, "side_tags", None)
    if requested is not None:
        if tag_id not in requested:
            operator.side_tags = (*requested, tag_id)
    elif getattr(operator, "late_tag", None) != tag_id:
        raise GraphError(
            f"operator '{node.name}' (built at {node.defined_at}) has no side output {tag_id!r}. "
            "Call get_side_output on the result of process(...), map, flat_map or a window: their "
            "functions may return (tag, value). Late records need side_output_late_data(tag), "
            "too, and "
            "dead letters need on_error(tag) before."
        )
