"""Process functions with a broadcast side: input 0 brings the elements, input 1 the broadcast elements for all subtasks.

Source: Flink CoBroadcastWithNonKeyedOperator, CoBroadcastWithKeyedOperator.
"""

from __future__ import annotations

from typing import Any

from penstock.engine.model.types import TypeInformation
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import Batch
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operator import Emitted, OperatorContext
from penstock.engine.runtime.operators.process import (
    KeyedProcessContext,
    KeyedProcessOperator,
    ProcessContext,
    ProcessOperator,
    UnkeyedTimerService,
)
from penstock.engine.runtime.operators.stateless import rows_of
from penstock.engine.runtime.operators.two_input import CoFunctionOperator
from penstock.engine.runtime.state.broadcast import (
    BroadcastState,
    BroadcastStates,
    ReadOnlyBroadcastState,
)
from penstock.engine.runtime.state.descriptors import MapStateDescriptor
from penstock.engine.runtime.state.migration import StateOwner
from penstock.engine.runtime.state.snapshot import OperatorSnapshot


class _Times:
    """The times that both contexts of both operators give."""

    _timer_service: Any
    states: BroadcastStates

    def current_processing_time(self) -> int:
        return int(self._timer_service.current_processing_time())

    def current_watermark(self) -> int:
        return int(self._timer_service.current_watermark())


class ReadOnlyContext(_Times, ProcessContext):
    """The `ctx` of elements, without a key."""

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState:
        return self.states.read_only(state_descriptor)


class KeyedReadOnlyContext(_Times, KeyedProcessContext):
    """The `ctx` of elements and timers, with the key."""

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState:
        return self.states.read_only(state_descriptor)


class BroadcastContext(_Times, ProcessContext):
    """The `ctx` of broadcast elements."""

    without_key = (
        "a broadcast element belongs to no key. Call it in process_element() or on_timer() of a "
        "KeyedBroadcastProcessFunction"
    )

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState:
        return self.states.writable(state_descriptor)


class BroadcastProcessOperator(CoFunctionOperator, ProcessOperator):
    """`process_element(value, ctx)` and `process_broadcast_element(value, ctx)`, without a key."""

    methods = ("process_element", "process_broadcast_element")

    state_types: tuple[TypeInformation, ...] = ()

    def __init__(
        self,
        function: UserFunction,
        state_names: tuple[str, ...],
        state_types: tuple[TypeInformation, ...] = (),
    ) -> None:
        """`state_types`: of the maps, in the order of the names; none: they are not known."""
        super().__init__(function)
        self.state_names = state_names
        self.state_types = state_types
        self._restored = OperatorSnapshot()

    def open(self, context: OperatorContext) -> None:
        self._states = _restored_states(self, self._restored, context)
        timer_service = UnkeyedTimerService(self, context.timers.now_ms)
        reading, writing = (
            ReadOnlyContext(self, timer_service),
            BroadcastContext(self, timer_service),
        )
        reading.states = writing.states = self._states
        self._contexts = (reading, writing)
        super().open(context)

    def process(self, batch: Batch, input_index: int) -> Emitted:
        self._context = self._contexts[input_index]
        return self.processed(rows_of(batch), self.call_of(input_index))

    def snapshot(self) -> OperatorSnapshot:
        return OperatorSnapshot(lists=self._states.snapshot())

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._restored = snapshot


class KeyedBroadcastProcessOperator(CoFunctionOperator, KeyedProcessOperator):
    """As BroadcastProcessOperator, with a key, keyed state and timers for the elements. Broadcast elements have no key."""

    may_get_fields = False

    methods = ("process_element", "process_broadcast_element")

    state_types: tuple[TypeInformation, ...] = ()

    def __init__(
        self,
        function: UserFunction,
        keys: KeySelection,
        state_names: tuple[str, ...],
        state_types: tuple[TypeInformation, ...] = (),
    ) -> None:
        """`state_types`: as for BroadcastProcessOperator."""
        super().__init__(function, keys)
        self.state_names = state_names
        self.state_types = state_types
        self.watermark = 0

    def open(self, context: OperatorContext) -> None:
        self._states = _restored_states(self, self._restored, context)
        super().open(context)
        reading = KeyedReadOnlyContext(self)
        self._broadcast_context = BroadcastContext(self, reading.timer_service())
        reading.states = self._broadcast_context.states = self._states
        self._context = reading

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows, call = rows_of(batch), self.call_of(input_index)
        if input_index == 0:
            return self.processed(rows, call)
        return self.processed_without_key(rows, call, self._broadcast_context)

    def snapshot(self) -> OperatorSnapshot:
        snapshot = super().snapshot()
        snapshot.lists.update(self._states.snapshot())
        return snapshot


def _restored_states(
    operator: BroadcastProcessOperator | KeyedBroadcastProcessOperator,
    restored: OperatorSnapshot,
    context: OperatorContext,
) -> BroadcastStates:
    """Raises: UserError: as `BroadcastStates.restore`."""
    states = BroadcastStates(operator.state_names, operator.state_types)
    owner = StateOwner(context.operator_id, context.operator_name, restored.allows_double)
    states.restore(restored.lists, owner)
    return states
