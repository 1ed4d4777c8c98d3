"""What a window keeps, and what it emits when it fires: contents, window functions, their context.

Do not know triggers or timers. Source: Flink InternalWindowFunction and its adapters, PyFlink's window
functions; differs: contents are always incremental for reduce and aggregate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from penstock.engine.model.row import named
from penstock.engine.model.types import ListTypeInfo, TupleTypeInfo, TypeInformation, Types
from penstock.engine.runtime.context import KeyedStateStore, UserFunction
from penstock.engine.runtime.records.output_copies import own_copy, same
from penstock.engine.runtime.state.contract import KeyedStateBackend, MergingState
from penstock.engine.runtime.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from penstock.engine.runtime.windowing.evictors import Evictor

CONTENTS: Final = "__window_contents__"
MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class WindowContents(ABC):
    """How records are kept until the window fires. `function` None: as a list."""

    function: UserFunction | None

    @property
    def evictor(self) -> Evictor | None:
        """Drops records before or after the window function. Only lists can have one."""
        return None

    @property
    def kind(self) -> str:
        """The kind of the state that keeps the records."""
        return type(self.descriptor()).__name__.removesuffix("StateDescriptor")

    @abstractmethod
    def descriptor(self) -> StateDescriptor:
        """The state that keeps the records."""

    def stored_type(self, records: TypeInformation | None) -> TypeInformation | None:
        """The type of what is kept, given that of the records; None: it is not known."""
        return records

    @abstractmethod
    def fold(self) -> Callable[[dict[Any, Any], Iterable[Any], Iterable[Any]], None]:
        """Returns `fold(table, state keys, values)`, which adds values to a table of accumulators."""

    def result(self) -> Callable[[Any], Any]:
        """Returns the function from an accumulator to the value that the window function sees."""
        return same


@dataclass(frozen=True, slots=True)
class ReduceContents(WindowContents):
    """One value, reduced with each record. `names`: of the records' type, for Rows that the function gives none; None: of no Row."""

    function: UserFunction
    names: tuple[str, ...] | None = None

    @property
    def _call(self) -> Callable[[Any, Any], Any]:
        return named(self.function.call, self.names)

    def descriptor(self) -> StateDescriptor:
        return ReducingStateDescriptor(CONTENTS, self._call)

    def fold(self) -> Callable[[dict[Any, Any], Iterable[Any], Iterable[Any]], None]:
        return _fold_reduce(self._call)

    def result(self) -> Callable[[Any], Any]:
        """A copy, so that later records do not change the result."""
        return own_copy


@dataclass(frozen=True, slots=True)
class AggregateContents(WindowContents):
    """One accumulator. The function's owner is the AggregateFunction."""

    function: UserFunction

    def descriptor(self) -> StateDescriptor:
        return AggregatingStateDescriptor(CONTENTS, self.function.owner)

    def stored_type(self, records: TypeInformation | None) -> None:
        """The accumulator may be of any type."""

    def fold(self) -> Callable[[dict[Any, Any], Iterable[Any], Iterable[Any]], None]:
        return _fold_aggregate(self.function.owner)

    def result(self) -> Callable[[Any], Any]:
        found: Callable[[Any], Any] = self.function.owner.get_result
        return found


@dataclass(frozen=True, slots=True)
class ListContents(WindowContents):
    """Keeps all records. With `evicting` the evictor drops some when the window fires."""

    function: None = None
    evicting: Evictor | None = None

    @property
    def evictor(self) -> Evictor | None:
        return self.evicting

    def descriptor(self) -> StateDescriptor:
        return ListStateDescriptor(CONTENTS)

    def stored_type(self, records: TypeInformation | None) -> TypeInformation | None:
        """With an evictor each record is kept with its timestamp."""
        if records is None:
            return None
        with_stamp = TupleTypeInfo([records, Types.LONG()])
        return ListTypeInfo(records if self.evicting is None else with_stamp)

    def fold(self) -> Callable[[dict[Any, Any], Iterable[Any], Iterable[Any]], None]:
        return _fold_lists


class FoldedWindow:
    """Window function of a window with an evictor and a reduce or aggregate: folds what the evictor left.

    `inner`: the user's window function, which then sees one result, or None.
    """

    def __init__(self, contents: WindowContents, inner: UserFunction | None) -> None:
        self._contents = contents
        self._inner = inner

    def open(self, runtime_context: Any) -> None:
        for function in (self._contents.function, self._inner):
            if function is not None:
                function.open(runtime_context)

    def close(self) -> None:
        for function in (self._contents.function, self._inner):
            if function is not None:
                function.close()

    def process(self, key: Any, context: WindowContext, elements: Iterable[Any]) -> Any:
        """The window's result, or the result of the user's function for it."""
        table: dict[Any, Any] = {}
        values = list(elements)
        self._contents.fold()(table, [None] * len(values), values)
        folded = [self._contents.result()(kept) for kept in table.values()]
        return caller(self._inner, context)(key, context.window(), folded) if folded else []

    def clear(self, context: WindowContext) -> None:
        clear = clearer(self._inner)
        if clear is not None:
            clear(context)


def caller(
    function: UserFunction | None, context: WindowContext
) -> Callable[[Any, Any, list[Any]], Any]:
    """Returns `(key, window, elements) -> iterable of results or None`. Without a function the elements are the results."""
    if function is None:
        return lambda _key, _window, elements: elements
    call = function.call
    if takes_context(function):
        return lambda key, _window, elements: call(key, context, elements)
    return call


def takes_context(function: UserFunction) -> bool:
    """Whether the function is `process(key, context, elements)`, and not `apply(key, window, elements)`."""
    name = getattr(function.call, "__name__", "")
    if name in {"apply", "process"}:
        return bool(name == "process")
    return function.method("process") is not None and function.method("apply") is None


def clearer(function: UserFunction | None) -> Callable[[Any], Any] | None:
    """The user's `clear(context)`, for process functions that have one which does something."""
    if function is None or not takes_context(function) or not function.does("clear"):
        return None
    return function.method("clear")


class _NoWindowState(KeyedStateStore):
    """Refuses state of windows that merge: the state of a merged window would stay for ever."""

    def _keyed(self, descriptor: object, expected: type) -> KeyedStateBackend:
        raise RuntimeError(
            "window_state() cannot be used with windows that merge (sessions): their state would be lost. Use "
            "context.global_state(), or windows that do not merge"
        )


class WindowContext:
    """`context` of process window functions. The operator sets `window_now` before each call.

    Args: is_merging: the windows merge, and so cannot have state of their own.
    """

    def __init__(
        self,
        window_backend: KeyedStateBackend,
        global_backend: KeyedStateBackend,
        now_ms: Callable[[], int],
        *,
        is_merging: bool = False,
    ) -> None:
        self.window_now: Any = None
        self.watermark_now = 0
        self.fired_at_ms: int | None = None
        """The time of the record or the timer that fires the window; None: it fires at its last time."""
        self._now_ms = now_ms
        store = _NoWindowState if is_merging else KeyedStateStore
        self._window_store = store(window_backend)
        self._global_store = KeyedStateStore(global_backend)

    def window(self) -> Any:
        return self.window_now

    def current_processing_time(self) -> int:
        return self._now_ms()

    def current_watermark(self) -> int:
        return self.watermark_now

    def window_state(self) -> KeyedStateStore:
        """Return state of this key and window, which the function's `clear` must drop. For windows that merge the getters raise
        RuntimeError.
        """
        return self._window_store

    def global_state(self) -> KeyedStateStore:
        """Return state of this key."""
        return self._global_store


def absorbing(state: Any) -> MergingState:
    """The contents' state as one that can merge namespaces."""
    assert isinstance(state, MergingState)
    return state


def _fold_lists(table: dict[Any, Any], skeys: Iterable[Any], values: Iterable[Any]) -> None:
    get = table.get
    for skey, value in zip(skeys, values, strict=False):
        kept = get(skey)
        if kept is None:
            table[skey] = [value]
        else:
            kept.append(value)


def _fold_reduce(call: Callable[[Any, Any], Any]) -> Callable[..., None]:
    def fold(table: dict[Any, Any], skeys: Iterable[Any], values: Iterable[Any]) -> None:
        get, missing = table.get, MISSING
        for skey, value in zip(skeys, values, strict=False):
            kept = get(skey, missing)
            # Other windows have the record too, and the function may change its first argument in
            # place.
            table[skey] = own_copy(value) if kept is missing else call(kept, value)

    return fold


def _fold_aggregate(function: Any) -> Callable[..., None]:
    create, add = function.create_accumulator, function.add

    def fold(table: dict[Any, Any], skeys: Iterable[Any], values: Iterable[Any]) -> None:
        get, missing = table.get, MISSING
        for skey, value in zip(skeys, values, strict=False):
            kept = get(skey, missing)
            table[skey] = add(value, create() if kept is missing else kept)

    return fold
