"""Base of keyed operators: key context, keyed state, timers; and map, flat map, filter on keyed streams.

In a BATCH job one key comes after the other. When a key ends, its timers fire with the last watermark, and its state is
dropped.

Source: Flink AbstractStreamOperator (keyed part), BatchExecutionKeyedStateBackend, PyFlink's keyed functions; differs:
the keys of a batch are computed at once, and one generator sets the context for each record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from inspect import isgeneratorfunction
from itertools import repeat
from typing import Any, ClassVar, Final

from penstock.engine.model.key_types import KeyType
from penstock.engine.model.metrics import OwnMetric, gauge
from penstock.engine.model.types import TypeInformation, is_pickled
from penstock.engine.runtime.context import RuntimeContext, UserFunction
from penstock.engine.runtime.elements import NO_TIMESTAMP, Batch, ColumnBatch, RowBatch, classes_of
from penstock.engine.runtime.keys import KeySelection, state_keys
from penstock.engine.runtime.keys.encoding import RefusedKey
from penstock.engine.runtime.keys.hash_arrays import hash_keys
from penstock.engine.runtime.keys.hashing import NoKey, is_int32_type, original_key
from penstock.engine.runtime.keys.kinds import KeyClasses, KeyKinds
from penstock.engine.runtime.operator import BatchOrder, Emitted, Operator, OperatorContext
from penstock.engine.runtime.operators.stateless import (
    RECORDS_AT_ONCE,
    FunctionOperator,
    expand,
    filtered,
    rows_of,
    whole,
)
from penstock.engine.runtime.operators.timer_service import BatchTimerService, InternalTimerService
from penstock.engine.runtime.records.parts import in_parts
from penstock.engine.runtime.records.side_output import separated
from penstock.engine.runtime.row_functions.plans import Strategy
from penstock.engine.runtime.row_functions.runner import ColumnRows, FieldsFunction
from penstock.engine.runtime.state.contract import KeyedStateBackend
from penstock.engine.runtime.state.heap import HeapKeyedStateBackend
from penstock.engine.runtime.state.migration import StateOwner, records_type
from penstock.engine.runtime.state.snapshot import OperatorSnapshot, StateInfo

KEY_ENDS: Final = object()
"""Stands in place of a record: the current key has no more records."""


class KeyTaker(FunctionOperator):
    """A function operator that takes the key of each record: with a selector, or from the columns that the records were made of.

    `keys`: the key selection; `selections`: those of all inputs that have keys.
    """

    _kinds: KeyKinds | None = None
    _classes: KeyClasses | None = None
    may_get_fields: bool = False
    """Whether its function may be called with the fields of records that come in columns."""

    def __init__(self, function: UserFunction, keys: KeySelection) -> None:
        super().__init__(function)
        self.keys = keys
        self.selections: tuple[KeySelection, ...] = (keys,)
        self._found: tuple[list[Any], list[Any]] | None = None

    def open(self, context: OperatorContext) -> None:
        for one in () if self.functions_as_columns else self.selections:
            one.computed.turn_off()
        super().open(context)

    def rows_from(
        self, batch: ColumnBatch, type_info: TypeInformation | None, input_index: int
    ) -> RowBatch:
        if input_index >= len(self.selections):
            return super().rows_from(batch, type_info, input_index)
        if self.may_get_fields:
            viewed = self._rows_of_fields(batch, type_info)
            if viewed is not None:
                return viewed
        rows, keys = self.selections[input_index].rows_and_keys(batch, type_info)
        self._found = None if keys is None else (rows.values, keys)
        return rows

    def _rows_of_fields(
        self, batch: ColumnBatch, type_info: TypeInformation | None
    ) -> ColumnRows | None:
        """The batch for a function that only reads fields, if its key is a field, too. None: records are needed."""
        if self.row_function is None:
            self.row_function = FieldsFunction(
                self.called_with_records(), self.functions_as_columns
            )
        plan = self.row_function.plan(batch, type_info)
        if plan.strategy is not Strategy.FIELDS or not plan.holds():
            return None
        rows = ColumnRows(batch, type_info, plan)
        keys = self.keys.keys_in_columns(batch, type_info, rows.known)
        if keys is None:
            return None
        self._found = (rows.values, keys)
        return rows

    def called_with_records(self) -> Callable[..., Any]:
        """The function, or the method of it, that is called with each record."""
        return self.function.call

    def keys_of(self, values: list[Any]) -> list[Any]:
        """The keys of the records, which become the watched batch. Raises: as the selector, or as the declared key type demands."""
        position = self.watched(values)
        found, self._found = self._found, None
        if found is not None and found[0] is values:
            return found[1]
        return self.keys.keys_of_rows(position)

    def state_keys_of(self, values: list[Any]) -> tuple[list[Any], list[Any]]:
        """`keys_of`, and what stands for each key in the state.

        Raises: UserError: see `KeyKinds.note`; TypeError: a value cannot be a key.
        """
        keys = self.keys_of(values)
        kinds = classes_of(keys)
        if self._kinds is not None:
            self._kinds.note(kinds)
        try:
            return keys, self.checked_keys(keys, state_keys(keys, kinds))
        except RefusedKey as error:
            raise self.keys.refused_key(error, keys, values) from None

    def checked_keys(self, keys: list[Any], skeys: list[Any]) -> list[Any]:
        """What stands for the keys. Raises: RefusedKey: see `KeyClasses.check`."""
        if skeys is not keys:
            if self._classes is None:
                self._classes = KeyClasses()
            self._classes.check(keys, skeys)
        return skeys

    def watch_kinds(self, context: OperatorContext, restored: OperatorSnapshot) -> None:
        """Remember the classes of keys from here on, if their type is not declared. In BATCH no snapshot is made."""
        if not context.is_batch and is_pickled(key_type_of(self.selections).type_info):
            owner = StateOwner(context.operator_id, context.operator_name)
            self._kinds = KeyKinds(restored.key_kinds, owner)

    def key_type(self, namespace: str = "") -> KeyType:
        """The type of the keys of its state, with the classes that it has met. `namespace`: of its windows."""
        made = key_type_of(self.selections, namespace)
        return made if self._kinds is None else replace(made, kinds=self._kinds.names())


class KeyedOperator(KeyTaker):
    """A function operator with keyed state and timers."""

    batch_order: ClassVar[BatchOrder] = BatchOrder.BY_KEY
    ends_keys: bool = False
    """In BATCH, whether something has to be done when a key ends: `entering` then yields KEY_ENDS."""

    def __init__(self, function: UserFunction, keys: KeySelection) -> None:
        super().__init__(function, keys)
        self._restored = OperatorSnapshot()
        self.stamp = NO_TIMESTAMP
        self.state: KeyedStateBackend
        self.timers: InternalTimerService
        self.key_timers: BatchTimerService | None = None
        """In a BATCH job: the timers of the current key, the only one that has any."""
        self._is_between_keys = False

    def runtime_context(self, context: OperatorContext) -> RuntimeContext:
        self.state = new_backend(context, self.keys)
        self.watch_kinds(context, self._restored)
        self.state.leave_key(NoKey(f"in open() of {self.function.name}"))
        self.restored_states = restore_backend(self.state, self._restored, "state")
        made = BatchTimerService if context.is_batch else InternalTimerService
        self.timers = made(context.timers, self.state.timer_queue)
        self._pauses = Pauses(context.timers.now_ms)
        self.key_timers = self.timers if isinstance(self.timers, BatchTimerService) else None
        return RuntimeContext(context, self.function, self.state)

    def own_metrics(self) -> Sequence[OwnMetric]:
        return (
            *super().own_metrics(),
            gauge("numKeys", self.state.key_count),
            gauge("numTimers", lambda: timer_count(self.timers)),
        )

    @property
    def fired_timers(self) -> int:  # type: ignore[override] # what the base sets, this one counts
        return self.timers.fired if hasattr(self, "timers") else 0

    @property
    def state_keys(self) -> KeyType:
        return self.key_type()

    def close(self) -> None:
        is_open = hasattr(self, "state")
        if is_open:
            self.state.leave_key(NoKey(f"in close() of {self.function.name}"))
        super().close()
        if is_open:
            self.state.close()

    def leave_key(self) -> None:
        """Leave the key of the last record or timer. In BATCH it stays, until its last timer has fired."""
        if self.key_timers is None:
            self.state.leave_key()

    def entering(self, rows: RowBatch) -> Iterator[Any]:
        """The records. Before each is yielded, its key and timestamp become the context. In BATCH also KEY_ENDS, in
        the context of that key.
        """
        keys, skeys = self.state_keys_of(rows.values)
        position = self.watched_rows(rows)
        self.state.records_passed(len(rows))
        if self.key_timers is not None:
            stamps = repeat(NO_TIMESTAMP) if rows.timestamps is None else rows.timestamps.tolist()
            return self._key_by_key(zip(position, keys, skeys, stamps, strict=False))
        if rows.timestamps is None:
            return self._unstamped(zip(position, keys, skeys, strict=False))
        stamps = rows.timestamps.tolist()
        return self._stamped(zip(position, keys, skeys, stamps, strict=False))

    def _stamped(self, entering: Iterator[tuple[Any, Any, Any, int]]) -> Iterator[Any]:
        state = self.state
        for value, key, skey, stamp in entering:
            state.key, state.skey, self.stamp = key, skey, stamp
            yield value
        state.leave_key()

    def _unstamped(self, entering: Iterator[tuple[Any, Any, Any]]) -> Iterator[Any]:
        state = self.state
        self.stamp = NO_TIMESTAMP
        for value, key, skey in entering:
            state.key, state.skey = key, skey
            yield value
        state.leave_key()

    def _key_by_key(self, entering: Iterator[tuple[Any, Any, Any, int]]) -> Iterator[Any]:
        state = self.state
        last = state.skey
        for value, key, skey, stamp in entering:
            if skey != last:
                if type(last) is not NoKey and self.ends_keys:
                    self._is_between_keys = True
                    yield KEY_ENDS
                    self._is_between_keys = False
                self.forget_key()
                last = skey
            state.key, state.skey, self.stamp = key, skey, stamp
            yield value

    def forget_key(self) -> None:
        """In BATCH: drop everything of a key that has ended."""
        assert self.key_timers is not None, "keys end in BATCH jobs only"
        self.state.forget()
        self.key_timers.begin_key()

    def failing_record(self) -> str | None:
        return None if self._is_between_keys else super().failing_record()

    def enter_timer(self, skey: Any, stamp: int) -> None:
        """Set the key context for a timer."""
        self.state.key, self.state.skey, self.stamp = original_key(skey), skey, stamp

    def snapshot(self) -> OperatorSnapshot:
        snapshot = OperatorSnapshot()
        snapshot.add("state", self.state.snapshot())
        return snapshot

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._restored = snapshot


def timer_count(timers: InternalTimerService) -> int | None:
    """Timers of both kinds; None: counting them would take long."""
    event, processing = timers.event.count, timers.processing.count
    return None if event is None or processing is None else event + processing


def key_type_of(selections: Sequence[KeySelection], namespace: str = "") -> KeyType:
    """The type of the keys of the state of an operator. All its keyed inputs have the same keys, but not all need declare their type."""
    types = [one.state_type for one in selections]
    declared = [one for one in types if not is_pickled(one)] or types
    is_int32 = is_int32_type(selections[0].key_type)
    return KeyType.of(declared[0], is_int32=is_int32, namespace=namespace)


def new_backend(context: OperatorContext, keys: KeySelection) -> KeyedStateBackend:
    """An empty backend of the kind that the job uses."""
    make = context.services.keyed_state or HeapKeyedStateBackend
    is_int32 = is_int32_type(keys.key_type)
    made = make(context.max_parallelism, context.timers.now_ms, is_int32=is_int32)
    made.owner = StateOwner(
        context.operator_id, context.operator_name, records=records_type(context.input_types)
    )
    return made


def restore_backend(
    backend: KeyedStateBackend, restored: OperatorSnapshot, role: str
) -> dict[str, StateInfo]:
    """Give the backend its part of the snapshot. `role`: as in `OperatorSnapshot.add`; "" stands for everything.

    Returns the restored states that hold values.
    """
    backend.owner = replace(backend.owner, allows_double=restored.allows_double)
    prefix = f"{role}/" if role else ""
    found = dict(backend.restore_databases(restored.take_databases(prefix)))
    for piece in restored.take_in_pieces(prefix):
        found |= {name: part.info for name, part in piece.items() if part.keys}
        backend.restore(piece)
    return found


class KeyedMapOperator(KeyedOperator):
    """Map with keyed state. `side_tags`: ids of the tags that are read."""

    may_get_fields = True
    records_at_once = RECORDS_AT_ONCE
    side_tags: tuple[str, ...] = ()

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        results = map(self.function.call, self.entering(rows))
        return separated((whole(self, results, rows),), self.side_tags)


class KeyedFlatMapOperator(KeyedOperator):
    """Flat map with keyed state. `side_tags`: ids of the tags that are read."""

    may_get_fields = True
    records_at_once = RECORDS_AT_ONCE
    side_tags: tuple[str, ...] = ()

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        call = self.function.call
        results = map(call, self.entering(rows))
        made = expand(self, results, rows.timestamps, is_generator=isgeneratorfunction(call))
        return separated(made, self.side_tags)


class KeyedFilterOperator(KeyedOperator):
    """Filter with keyed state."""

    keeps_records = True
    records_at_once = RECORDS_AT_ONCE

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        return filtered(self, rows, map(self.function.call, self.entering(rows)))


_TARGET_MS: Final = 5
"""As long as a slice of a batch."""
_MOST_CALLS: Final = 64
_GROWTH: Final = 4


class Pauses:
    """Decides where a loop over calls of a user function offers a place to stop: one watermark can
    fire very many windows or timers.

    The task stops there for mails and flushes, as between two slices of a batch. No element
    overtakes: a barrier after the watermark still waits for all that the watermark fires. Does not
    know operators. Source: none in Flink, whose timers of DataStream programs fire without a stop
    (docs/internals/task.md#a-batch-of-records).

    Counts the calls and reads the clock rarely: the faster the calls are, the more of them pass
    between two readings.
    """

    __slots__ = ("_calls", "_left", "_most_calls", "_now_ms", "_since_ms", "_unpaused_ms")

    def __init__(self, now_ms: Callable[[], int], most_calls: int = _MOST_CALLS) -> None:
        self._now_ms = now_ms
        self._most_calls = most_calls
        self.begin()

    def begin(self) -> None:
        """A loop begins. Nobody knows how long its calls take."""
        self._calls = self._left = 1
        self.resume()

    def resume(self) -> None:
        """A loop continues after a stop."""
        self._since_ms = self._now_ms()
        self._unpaused_ms = 0

    @property
    def calls(self) -> int:
        """How many calls may follow before `is_due` has to be asked."""
        return self._left

    def is_due(self, calls: int = 1) -> bool:
        """Count calls. Returns: whether the loop should offer a place to stop now, and then call `resume`."""
        self._left -= calls
        return self._left <= 0 and self._look()

    def _look(self) -> bool:
        now_ms = self._now_ms()
        took_ms = max(0, now_ms - self._since_ms)
        self._since_ms = now_ms
        if took_ms * _GROWTH <= _TARGET_MS:
            self._calls = min(self._most_calls, self._calls * _GROWTH)
        else:
            self._calls = max(1, min(self._most_calls, self._calls * _TARGET_MS // took_ms))
        self._left = self._calls
        self._unpaused_ms += took_ms
        return self._unpaused_ms >= _TARGET_MS


class KeyCheckOperator(Operator):
    """Takes the key of each record before the records are distributed by key, so that a record without a key can be put
    aside.

    Where records are distributed and where keyed state is, the key is taken again. Source: none in Flink, where a key
    selector that fails fails the job.

    Passes the records on whose key can be taken, has the declared type, and can be hashed.
    """

    keeps_records = True

    def __init__(self, keys: KeySelection) -> None:
        self.keys = keys

    @property
    def handles_poison(self) -> bool:
        return True

    def process(self, batch: Batch, input_index: int) -> Emitted:
        if self.poison is None:
            return (batch,)
        return in_parts(self._with_keys, batch, self.put_aside)

    def _with_keys(self, batch: Batch) -> RowBatch:
        rows = rows_of(batch)
        hash_keys(self.keys.keys_of_rows(rows.values))
        return rows
