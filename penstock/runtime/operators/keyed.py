"""Base of keyed operators: key context, keyed state, timers; and map, flat map, filter on keyed streams.

Source: Flink AbstractStreamOperator (keyed part), PyFlink's keyed functions; differs: keys of a batch are
taken at once, the context is set per record by one generator.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import isgeneratorfunction
from typing import Any

from penstock.runtime.checkpoint.snapshot import OperatorSnapshot, StateInfo
from penstock.runtime.context import RuntimeContext, UserFunction
from penstock.runtime.elements import NO_TIMESTAMP, Batch, RowBatch
from penstock.runtime.heap_state import HeapKeyedStateBackend
from penstock.runtime.keys import KeySelection, state_keys
from penstock.runtime.keys.hashing import is_int32_type, original_key
from penstock.runtime.operator import Emitted, OperatorContext
from penstock.runtime.operators.stateless import (
    FunctionOperator,
    expand,
    kept_of,
    rows_of,
    whole,
)
from penstock.runtime.side_output import separated
from penstock.runtime.state import KeyedStateBackend
from penstock.runtime.timers import BatchTimerService, InternalTimerService


class KeyedOperator(FunctionOperator):
    """A function operator with keyed state and timers."""

    def __init__(self, function: UserFunction, keys: KeySelection) -> None:
        super().__init__(function)
        self.keys = keys
        self._restored = OperatorSnapshot()
        self.stamp = NO_TIMESTAMP
        self.state: KeyedStateBackend
        self.timers: InternalTimerService

    def runtime_context(self, context: OperatorContext) -> RuntimeContext:
        self.state = new_backend(context, self.keys)
        self.restored_states = restore_backend(self.state, self._restored, "state")
        made = BatchTimerService if context.is_batch else InternalTimerService
        self.timers = made(context.timers, self.state.timer_queue)
        return RuntimeContext(context, self.state)

    def close(self) -> None:
        super().close()
        if hasattr(self, "state"):
            self.state.close()

    def entering(self, rows: RowBatch) -> Iterator[Any]:
        """The records, each after its key and timestamp became the context."""
        keys = self.keys.keys_of_rows(self.watched(rows.values))
        skeys = state_keys(keys)
        position, state = self.watched(rows.values), self.state
        state.records_passed(len(rows.values))
        if rows.timestamps is not None:
            stamps = rows.timestamps.tolist()
            for value, key, skey, stamp in zip(position, keys, skeys, stamps, strict=False):
                state.key, state.skey, self.stamp = key, skey, stamp
                yield value
            return
        self.stamp = NO_TIMESTAMP
        for value, key, skey in zip(position, keys, skeys, strict=False):
            state.key, state.skey = key, skey
            yield value

    def enter_timer(self, skey: Any, stamp: int) -> None:
        """Key context of a timer."""
        self.state.key, self.state.skey, self.stamp = original_key(skey), skey, stamp

    def snapshot(self) -> OperatorSnapshot:
        snapshot = OperatorSnapshot()
        snapshot.add("state", self.state.snapshot())
        return snapshot

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._restored = snapshot


def new_backend(context: OperatorContext, keys: KeySelection) -> KeyedStateBackend:
    """An empty backend of the kind that the job has."""
    make = context.keyed_state or HeapKeyedStateBackend
    is_int32 = is_int32_type(keys.key_type)
    made = make(context.max_parallelism, context.timers.now_ms, is_int32=is_int32)
    made.owner = context.operator_id
    return made


def restore_backend(
    backend: KeyedStateBackend, restored: OperatorSnapshot, role: str
) -> dict[str, StateInfo]:
    """Give it what the snapshot has for it. `role`: as `OperatorSnapshot.add`; "" is all that there is.

    Returns what states there were, of which there are values.
    """
    prefix = f"{role}/" if role else ""
    found = dict(backend.restore_databases(restored.take_databases(prefix)))
    for piece in restored.take_in_pieces(prefix):
        found |= {name: part.info for name, part in piece.items() if part.keys}
        backend.restore(piece)
    return found


class KeyedMapOperator(KeyedOperator):
    """Map with keyed state at hand. `has_side_outputs`: ids of the tags that are read."""

    has_side_outputs: tuple[str, ...] = ()

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        results = whole(map(self.function.call, self.entering(rows)), len(rows.values))
        return separated((RowBatch(results, rows.timestamps),), self.has_side_outputs)


class KeyedFlatMapOperator(KeyedOperator):
    """Flat map with keyed state at hand. `has_side_outputs`: ids of the tags that are read."""

    has_side_outputs: tuple[str, ...] = ()

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        call = self.function.call
        results = map(call, self.entering(rows))
        made = expand(self, results, rows.timestamps, is_generator=isgeneratorfunction(call))
        return separated(made, self.has_side_outputs)


class KeyedFilterOperator(KeyedOperator):
    """Filter with keyed state at hand."""

    keeps_records = True

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        return kept_of(rows, map(self.function.call, self.entering(rows)))
