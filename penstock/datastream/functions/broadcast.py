"""Functions of a stream with a broadcast side. Knows no operator.

Source: pyflink.datastream.functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from penstock.datastream.functions.base import Function
from penstock.model.parametrised import Parametrised
from penstock.runtime.context import neutral
from penstock.runtime.operators import TimerService
from penstock.runtime.operators.timer_service import TimeDomain
from penstock.runtime.state.broadcast import BroadcastState, ReadOnlyBroadcastState
from penstock.runtime.state.descriptors import MapStateDescriptor


class BaseBroadcastProcessFunction(Parametrised, Function):
    """What both kinds share: their contexts."""

    class BaseContext(ABC):
        """Of one element."""

        @abstractmethod
        def timestamp(self) -> int: ...

        @abstractmethod
        def current_processing_time(self) -> int: ...

        @abstractmethod
        def current_watermark(self) -> int: ...

    class Context(BaseContext):
        """Of a broadcast element: the state may be changed."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState: ...

    class ReadOnlyContext(BaseContext):
        """Of an element that is not broadcast."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> ReadOnlyBroadcastState: ...


class BroadcastProcessFunction(BaseBroadcastProcessFunction):
    """Elements of a stream without a key, and broadcast elements, which all subtasks get."""

    class Context(BaseBroadcastProcessFunction.Context):
        """Of a broadcast element."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """Of an element."""

    @abstractmethod
    def process_element(
        self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any] | None: ...

    @abstractmethod
    def process_broadcast_element(
        self, value: Any, ctx: BroadcastProcessFunction.Context
    ) -> Iterable[Any] | None: ...


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction):
    """Elements with keyed state and timers, and broadcast elements, which all subtasks get."""

    class Context(BaseBroadcastProcessFunction.Context):
        """Of a broadcast element; it has no key."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """Of an element."""

        @abstractmethod
        def timer_service(self) -> TimerService: ...

        @abstractmethod
        def get_current_key(self) -> Any: ...

    class OnTimerContext(ReadOnlyContext):
        """Of a timer."""

        @abstractmethod
        def time_domain(self) -> TimeDomain: ...

    @abstractmethod
    def process_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any] | None: ...

    @abstractmethod
    def process_broadcast_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Iterable[Any] | None: ...

    @neutral
    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterable[Any] | None:
        """A timer of the current key is due."""
        return None
