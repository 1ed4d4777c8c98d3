"""Functions of a stream with a broadcast side. Does not know any operator.

Source: pyflink.datastream.functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic

from penstock.datastream.functions.base import Function, KeyedProcessFunction, Results
from penstock.datastream.functions.type_variables import IN1, IN2, KEY, OUT
from penstock.engine.runtime.context import neutral
from penstock.engine.runtime.state.broadcast import BroadcastState, ReadOnlyBroadcastState
from penstock.engine.runtime.state.descriptors import MapStateDescriptor


class BaseBroadcastProcessFunction(Function):
    """The base of both kinds of broadcast functions: holds their contexts."""

    class BaseContext(ABC):
        """Describes the element that is being processed."""

        @abstractmethod
        def timestamp(self) -> int:
            """Return the element's event time in epoch ms; -2^63 if it has none."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the processing time in epoch ms."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark in epoch ms."""

    class Context(BaseContext):
        """Describes a broadcast element. It may change the broadcast state."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState:
            """Return the broadcast state of a descriptor that `broadcast(...)` was given."""

    class ReadOnlyContext(BaseContext):
        """Describes an element of the other stream. It may only read the broadcast state."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> ReadOnlyBroadcastState:
            """Return the broadcast state of a descriptor that `broadcast(...)` was given."""


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """Processes an unkeyed stream and a broadcast stream, whose elements all subtasks get."""

    class Context(BaseBroadcastProcessFunction.Context):
        """Describes a broadcast element. It may change the broadcast state."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """Describes an element of the other stream. It may only read the broadcast state."""

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Results[OUT]:
        """Return the results for one element of the unkeyed stream; None: no result."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: BroadcastProcessFunction.Context
    ) -> Results[OUT]:
        """Return the results for one broadcast element; None: no result."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """Processes a keyed stream, with state and timers, and a broadcast stream, for all subtasks."""

    class Context(BaseBroadcastProcessFunction.Context):
        """Describes a broadcast element. It has no key, and may change the broadcast state."""

    class ReadOnlyContext(
        BaseBroadcastProcessFunction.ReadOnlyContext, KeyedProcessFunction.Context
    ):
        """Describes an element of the keyed stream, as the context of a KeyedProcessFunction does.

        It may only read the broadcast state.
        """

    class OnTimerContext(ReadOnlyContext, KeyedProcessFunction.OnTimerContext):
        """Describes the timer that fires; `timestamp()` is the timer's time."""

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Results[OUT]:
        """Return the results for one element of the keyed stream; None: no result."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Results[OUT]:
        """Return the results for one broadcast element; None: no result."""

    @neutral
    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Results[OUT]:
        """Return the results for a timer of the current key that fires; `timestamp` in epoch ms."""
        return None
