"""Which side outputs of an operator are read. Source: pyflink.datastream.data_stream.DataStream.get_side_output."""

from __future__ import annotations

from typing import Any

from penstock.model.errors import GraphError
from penstock.model.graph.stream_graph import StreamNode


def request_side_output(node: StreamNode, tag_id: str) -> None:
    """Tell the operator that this tag is read."""
    operator: Any = node.operator
    requested = getattr(operator, "has_side_outputs", None)
    if requested is not None:
        if tag_id not in requested:
            operator.has_side_outputs = (*requested, tag_id)
    elif getattr(operator, "late_tag", None) != tag_id:
        raise GraphError(
            f"operator '{node.name}' (built at {node.defined_at}) has no side output {tag_id!r}. "
            "Call get_side_output on the result of process(...), or of a window with "
            "side_output_late_data(OutputTag(...)) of that tag."
        )
