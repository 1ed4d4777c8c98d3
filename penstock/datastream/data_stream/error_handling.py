"""Sets error policies on operators, and checks that their dead letters are read. Builds the graph, runs nothing."""

from __future__ import annotations

from typing import Any

from penstock.datastream.building import adapters as adapt
from penstock.datastream.building.checks import built
from penstock.datastream.building.program import Upstream
from penstock.datastream.building.stream_plumbing import KeyedPlumbing, StreamPlumbing, keyed
from penstock.datastream.error_policy import DEAD_LETTER_TYPE, DeadLetter, ErrorPolicy
from penstock.model.errors import GraphError
from penstock.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.model.graph.stream_graph import StreamNode
from penstock.runtime import operators as ops
from penstock.runtime.operators.key_check import KeyCheckOperator


def set_policy(node: StreamNode, plumbing: StreamPlumbing, policy: object) -> None:
    """Let the operator handle errors so. `plumbing`: any stream of the same program.

    Raises: TypeError: it is no policy. GraphError: the operator calls no function of the user.
    """
    wanted = ErrorPolicy.of(policy)
    operator: Any = node.operator
    if wanted.rule is not None and not operator.handles_poison:
        raise GraphError(
            f"on_error: operator '{node.name}' (built at {node.defined_at}) calls no function of yours, and so it puts no record aside. "
            f"Call on_error on the result of map, process, a window, a source and the like. {built('on_error')}."
        )
    node.on_error = wanted.rule
    if wanted.sink is not None:
        _write_letters(node, plumbing, wanted)


def check_keys(plumbing: KeyedPlumbing, policy: object) -> KeyedPlumbing:
    """The keyed stream behind an operator that puts records without a key aside."""
    keys, unkeyed = plumbing.keys, plumbing.unkeyed
    if keys.columns is not None:
        raise GraphError(
            f"on_error: key_by with columns calls no function of yours, and so it puts no record aside. {built('on_error')}."
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


def _write_letters(node: StreamNode, plumbing: StreamPlumbing, policy: ErrorPolicy) -> None:
    """Let the policy's sink write the dead letters, as rows."""
    from penstock.datastream.data_stream.data_stream import DataStream

    assert policy.rule is not None and policy.rule.tag is not None and policy.sink is not None
    node.side_output_types[policy.rule.tag] = None
    letters = StreamPlumbing(
        plumbing.environment, (Upstream(node.node_id, tag=policy.rule.tag),), None
    )
    to_row = ops.MapOperator(adapt.map_function(DeadLetter.as_row))
    rows = letters.add_operator(f"Dead letters of {node.name}", to_row, DEAD_LETTER_TYPE)
    DataStream(rows).sink_to(policy.sink).name(f"Dead letters of {node.name}")
