"""State handles and descriptors under PyFlink's address. Source: pyflink.datastream.state."""

from penstock.common.absent import absent
from penstock.engine.runtime.state.broadcast import BroadcastState, ReadOnlyBroadcastState
from penstock.engine.runtime.state.contract import (
    AggregatingState,
    AppendingState,
    ListState,
    MapState,
    MergingState,
    ReducingState,
    State,
    ValueState,
)
from penstock.engine.runtime.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)

__all__ = [
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "BroadcastState",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "ReadOnlyBroadcastState",
    "ReducingState",
    "ReducingStateDescriptor",
    "State",
    "StateDescriptor",
    "StateTtlConfig",
    "ValueState",
    "ValueStateDescriptor",
]

__getattr__ = absent(
    __name__,
    {
        "OperatorStateStore": (
            "Get broadcast state from the context of a BroadcastProcessFunction: "
            "ctx.get_broadcast_state(descriptor)."
        ),
    },
    ("penstock.common",),
)
