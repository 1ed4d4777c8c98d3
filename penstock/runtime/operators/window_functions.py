"""What a window keeps and what it says when it fires: contents, window functions, their context.

Know no trigger and no timer. Source: Flink InternalWindowFunction and its adapters, PyFlink's window
functions; differs: contents are incremental for reduce and aggregate always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from penstock.runtime.context import KeyedStateStore, UserFunction
from penstock.runtime.state import KeyedStateBackend, MergingState
from penstock.runtime.state_descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from penstock.runtime.windowing.assigners import WindowAssigner
from penstock.runtime.windowing.evictors import Evictor
from penstock.runtime.windowing.triggers import Trigger

CONTENTS: Final = "__window_contents__"
MISSING: Final = object()


class ContentsKind(Enum):
    """How records are kept until the window fires."""

    REDUCE = "reduce"
    AGGREGATE = "aggregate"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class WindowContents:
    """`function`: the reduce function, or a UserFunction whose owner is an AggregateFunction; None for LIST."""

    kind: ContentsKind
    function: UserFunction | None = None

    @staticmethod
    def reduce(function: UserFunction) -> WindowContents:
        return WindowContents(ContentsKind.REDUCE, function)

    @staticmethod
    def aggregate(function: UserFunction) -> WindowContents:
        return WindowContents(ContentsKind.AGGREGATE, function)

    @staticmethod
    def elements() -> WindowContents:
        return WindowContents(ContentsKind.LIST)

    def descriptor(self) -> StateDescriptor:
        """State that keeps them."""
        if self.function is None:
            return ListStateDescriptor(CONTENTS)
        if self.kind is ContentsKind.REDUCE:
            return ReducingStateDescriptor(CONTENTS, self.function.call)
        return AggregatingStateDescriptor(CONTENTS, self.function.owner)

    def result(self) -> Callable[[Any], Any]:
        """Accumulator to the value that the window function sees."""
        if self.kind is ContentsKind.AGGREGATE and self.function is not None:
            found: Callable[[Any], Any] = self.function.owner.get_result
            return found
        return _same

    def fold(self) -> Callable[[dict[Any, Any], Iterable[Any], Iterable[Any]], None]:
        """`fold(table, state keys, values)`: add values to a table of accumulators."""
        if self.function is None:
            return _fold_lists
        if self.kind is ContentsKind.REDUCE:
            return _fold_reduce(self.function.call)
        return _fold_aggregate(self.function.owner)


class WindowStyle(Enum):
    """How the window function is called. The `_ALL` styles have no key."""

    PASS = "pass"
    APPLY = "apply"
    PROCESS = "process"
    APPLY_ALL = "apply_all"
    PROCESS_ALL = "process_all"


@dataclass(frozen=True, slots=True)
class WindowOutput:
    """`function`: its call is `apply` or `process` of the user's window function; None for PASS."""

    style: WindowStyle = WindowStyle.PASS
    function: UserFunction | None = None

    def caller(self, context: WindowContext) -> Callable[[Any, Any, list[Any]], Any]:
        """`(key, window, elements) -> iterable of results or None`."""
        if self.function is None:
            return lambda _key, _window, elements: elements
        call = self.function.call
        if self.style is WindowStyle.APPLY:
            return call
        if self.style is WindowStyle.APPLY_ALL:
            return lambda _key, window, elements: call(window, elements)
        if self.style is WindowStyle.PROCESS_ALL:
            return lambda _key, _window, elements: call(context, elements)
        return lambda key, _window, elements: call(key, context, elements)

    def clearer(self) -> Callable[[Any], Any] | None:
        """The user's `clear(context)`, for process functions that have one."""
        if self.function is None or self.style not in {WindowStyle.PROCESS, WindowStyle.PROCESS_ALL}:
            return None
        return self.function.method("clear")


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """How windows are made and when they fire. `late_tag`: id of the side output for late records."""

    assigner: WindowAssigner
    trigger: Trigger | None = None
    allowed_lateness_ms: int = 0
    late_tag: str | None = None
    evictor: Evictor | None = None


class WindowContext:
    """`context` of process window functions. The operator sets `window_now` before each call."""

    def __init__(
        self,
        window_backend: KeyedStateBackend,
        global_backend: KeyedStateBackend,
        now_ms: Callable[[], int],
    ) -> None:
        self.window_now: Any = None
        self.watermark_now = 0
        self._now_ms = now_ms
        self._window_store = KeyedStateStore(window_backend)
        self._global_store = KeyedStateStore(global_backend)

    def window(self) -> Any:
        return self.window_now

    def current_processing_time(self) -> int:
        return self._now_ms()

    def current_watermark(self) -> int:
        return self.watermark_now

    def window_state(self) -> KeyedStateStore:
        """State of this key and window; `clear` of the function must drop it."""
        return self._window_store

    def global_state(self) -> KeyedStateStore:
        """State of this key."""
        return self._global_store


def absorbing(state: Any) -> MergingState:
    """The contents' state, which can merge namespaces."""
    assert isinstance(state, MergingState)
    return state


def _same(value: Any) -> Any:
    return value


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
            table[skey] = value if kept is missing else call(kept, value)

    return fold


def _fold_aggregate(function: Any) -> Callable[..., None]:
    create, add = function.create_accumulator, function.add

    def fold(table: dict[Any, Any], skeys: Iterable[Any], values: Iterable[Any]) -> None:
        get, missing = table.get, MISSING
        for skey, value in zip(skeys, values, strict=False):
            kept = get(skey, missing)
            table[skey] = add(value, create() if kept is missing else kept)

    return fold
