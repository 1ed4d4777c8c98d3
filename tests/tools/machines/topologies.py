"""Graphs as the autoscaler sees them."""

from collections import defaultdict

from penstock.engine.model.ids import VertexId
from penstock.ops.autoscaler.rules.samples import Topology
from penstock.ops.jobs.snapshots import InputFacts, VertexFacts


def topology_of(names, edges=(), max_parallelism=128, groups=None) -> Topology:
    """`edges`: source and target, with True after them if each key belongs to one subtask."""
    inputs = defaultdict(list)
    for source, target, *is_hash in edges:
        ship_strategy = "HASH" if any(is_hash) else "FORWARD"
        inputs[target].append(
            InputFacts(VertexId(source), ship_strategy, "pipelined_bounded", "data set")
        )
    return Topology(
        VertexFacts(
            VertexId(name),
            name,
            1,
            max_parallelism,
            (groups or {}).get(name, "default"),
            (),
            tuple(inputs[name]),
        )
        for name in names
    )
