"""Sets error policies on operators, and checks that their dead letters are read. Builds the
graph, runs nothing."""

from __future__ import annotations

from typing import Any

from penstock.datastream.building import adapters as adapt
from penstock.datastream.building.checks import built
from penstock.datastream.building.program import Upstream
from penstock.datastream.building.stream_plumbing import KeyedPlumbing, StreamPlumbing, keyed
from penstock.datastream.error_policy import DEAD_LETTER_TYPE, SINK_TAG, DeadLetter, ErrorPolicy
from penstock.datastream.output_tag import OutputTag
from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.model.graph.stream_graph import StreamNode
from penstock.engine.runtime import operators as ops
from penstock.engine.runtime.operators.keyed import KeyCheckOperator
from penstock.engine.runtime.sink import Sink


def set_policy(node: StreamNode, plumbing: StreamPlumbing | None, policy: object) -> None:
    """Let the operator handle errors so. `plumbing`: any stream of the same program.

    Raises: TypeError: it is no policy. GraphError: the operator calls no function of the user.
    """
    wanted = ErrorPolicy.of(policy)
    operator: Any = node.operator
    if wanted.rule is not None and (plumbing is None or not operator.handles_poison):
        raise GraphError(
            f"on_error: operator '{node.name}' (built at {node.defined_at}) puts no record aside: "
            "it calls no function of yours, or is a "
            "sink that does not convert records one by one. Call on_error on the result of map, "
            "process, a window, a source and the "
            f"like. {built('on_error')}."
        )
    if plumbing is None:
        return
    rules = plumbing.program.error_rules
    if wanted.rule is None:
        rules.pop(node.node_id, None)
    else:
        rules[node.node_id] = wanted.rule
    if wanted.sink is not None:
        _write_letters(node, plumbing, wanted.sink)


def check_keys(plumbing: KeyedPlumbing, policy: object) -> KeyedPlumbing:
    """Adds an operator that puts records without a key aside, and returns its keyed stream."""
    keys, unkeyed = plumbing.keys, plumbing.unkeyed
    if keys.columns is not None:
        raise GraphError(
            "on_error: key_by with columns calls no function of yours, and so it puts no record "
            f"aside. {built('on_error')}."
        )
    checked = unkeyed
    if key_check_of(plumbing) is None:
        checked = unkeyed.add_beside("Key check", KeyCheckOperator(keys), unkeyed.element_type)
    set_policy(checked.node("on_error"), checked, policy)
    hashed = checked.partitioned(Partitioning(ShipStrategy.HASH, key_selector=keys))
    return keyed(hashed, checked, keys)


def key_check_of(plumbing: KeyedPlumbing) -> StreamNode | None:
    """The operator that `check_keys` added before this keyed stream; None: there is none."""
    upstreams = plumbing.unkeyed.upstreams
    node = plumbing.program.nodes[upstreams[0].node_id]
    is_one = len(upstreams) == 1 and isinstance(node.operator, KeyCheckOperator)
    return node if is_one else None


def letters_of(node: StreamNode, plumbing: StreamPlumbing | None, tag: object) -> Any:
    """The dead letters of a sink, as a DataStream. Raises: GraphError: it sends none there."""
    from penstock.datastream.data_stream.data_stream import DataStream

    if not isinstance(tag, OutputTag):
        raise TypeError(f"get_side_output takes an OutputTag, got {tag!r:.200}.")
    rule = None if plumbing is None else plumbing.program.error_rules.get(node.node_id)
    if plumbing is None or rule is None or rule.tag != tag.tag_id:
        raise GraphError(
            f"sink '{node.name}' (built at {node.defined_at}) has no side output {tag.tag_id!r}: "
            "a sink has only dead letters. Call "
            f"on_error(tag) before. {built('get_side_output')}."
        )
    return DataStream(_letters(node, plumbing, tag.tag_id))


def _letters(node: StreamNode, plumbing: StreamPlumbing, tag: str) -> StreamPlumbing:
    """The dead letters of an operator. From now on they are read."""
    node.side_output_types[tag] = None
    upstream = Upstream(node.node_id, tag=tag)
    return StreamPlumbing(plumbing.environment, (upstream,), None)


def _write_letters(node: StreamNode, plumbing: StreamPlumbing, sink: Sink) -> None:
    """Let a sink write the dead letters, as rows."""
    from penstock.datastream.data_stream.data_stream import DataStream

    letters = _letters(node, plumbing, SINK_TAG)
    to_row = ops.MapOperator(adapt.map_function(DeadLetter.as_row))
    rows = letters.add_operator(f"Dead letters of {node.name}", to_row, DEAD_LETTER_TYPE)
    DataStream(rows).sink_to(sink).name(f"Dead letters of {node.name}")
