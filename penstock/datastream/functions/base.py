"""Classes that user functions may extend. Knows no operator: the engine calls them by duck typing.

Source: pyflink.datastream.functions; differs: sources and sinks are Python classes of their own
(`penstock.datastream.connectors`), so SourceFunction and SinkFunction only say so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NoReturn, TypeVar

from penstock.datastream.time_domain import TimeDomain
from penstock.datastream.timerservice import TimerService
from penstock.model.parametrised import Parametrised
from penstock.runtime.context import KeyedStateStore, RuntimeContext, neutral
from penstock.runtime.operators.asynchronous.retry import AsyncRetryStrategy

IN = TypeVar("IN")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W = TypeVar("W")


class Function(ABC):  # ruff: ignore[abstract-base-class-without-abstract-method]
    """Opened once per attempt on the task's thread, closed once."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Before the first record: connections, models and state handles belong here."""

    def close(self) -> None:
        """After the last record, and after a failure."""


class MapFunction(Function, Generic[IN, OUT]):
    """One value to one value."""

    @abstractmethod
    def map(self, value: IN) -> OUT: ...


class FlatMapFunction(Function, Generic[IN, OUT]):
    """One value to any number of values: a generator, or anything that can be iterated."""

    @abstractmethod
    def flat_map(self, value: IN) -> Iterable[OUT]: ...


class FilterFunction(Function, Generic[IN]):
    """Keeps the values for which `filter` is true."""

    @abstractmethod
    def filter(self, value: IN) -> bool: ...


class ReduceFunction(Function):
    """Two values to one of their type."""

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any: ...


class KeySelector(Function, Generic[IN, KEY]):
    """The key of a value; the same value must always give the same key."""

    @abstractmethod
    def get_key(self, value: IN) -> KEY: ...


class NullByteKeySelector(KeySelector[Any, int]):
    """One key for everything."""

    def get_key(self, value: Any) -> int:
        return 0


class Partitioner(Function):
    """Chooses the channel of a key."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int: ...


class AggregateFunction(Function):
    """Values gathered in an accumulator; `merge` is needed for merging (session) windows only."""

    @abstractmethod
    def create_accumulator(self) -> Any: ...

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any: ...

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any: ...

    @abstractmethod
    def merge(self, acc_a: Any, acc_b: Any) -> Any: ...


class ProcessFunction(Function):
    """Values with their timestamps; results and side outputs (`yield tag, value`) are iterated."""

    class Context(ABC):
        """Of one element."""

        @abstractmethod
        def timer_service(self) -> TimerService: ...

        @abstractmethod
        def timestamp(self) -> int:
            """-2^63 when the element has none."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any] | None: ...


class KeyedProcessFunction(Function):
    """As ProcessFunction, with keyed state and timers."""

    class Context(ABC):
        """Of one element."""

        @abstractmethod
        def get_current_key(self) -> Any: ...

        @abstractmethod
        def timer_service(self) -> TimerService: ...

        @abstractmethod
        def timestamp(self) -> int:
            """-2^63 when the element has none."""

    class OnTimerContext(Context):
        """Of one timer: `timestamp()` is the timer's."""

        @abstractmethod
        def time_domain(self) -> TimeDomain: ...

    @abstractmethod
    def process_element(
        self, value: Any, ctx: KeyedProcessFunction.Context
    ) -> Iterable[Any] | None: ...

    @neutral
    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterable[Any] | None:
        """A timer of the current key is due."""
        return None


class CoMapFunction(Function):
    """One method for each of two connected streams."""

    @abstractmethod
    def map1(self, value: Any) -> Any: ...

    @abstractmethod
    def map2(self, value: Any) -> Any: ...


class CoFlatMapFunction(Function):
    """One method for each of two connected streams, any number of results."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any]: ...

    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any]: ...


class CoProcessFunction(Function):
    """One method for each of two connected streams, with timestamps."""

    class Context(ABC):
        """Of one element."""

        @abstractmethod
        def timer_service(self) -> TimerService: ...

        @abstractmethod
        def timestamp(self) -> int: ...

    @abstractmethod
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Any: ...

    @abstractmethod
    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Any: ...


class KeyedCoProcessFunction(Function):
    """As CoProcessFunction, with keyed state and timers shared by both streams."""

    class Context(ABC):
        """Of one element."""

        @abstractmethod
        def get_current_key(self) -> Any: ...

        @abstractmethod
        def timer_service(self) -> TimerService: ...

        @abstractmethod
        def timestamp(self) -> int: ...

    class OnTimerContext(Context):
        """Of one timer."""

        @abstractmethod
        def time_domain(self) -> TimeDomain: ...

    @abstractmethod
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any: ...

    @abstractmethod
    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any: ...

    @neutral
    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Any:
        """A timer of the current key is due."""


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """All values of a window of one key."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT]: ...


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """All values of a window of an unkeyed stream."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT]: ...


class PassThroughWindowFunction(WindowFunction[IN, IN, KEY, W]):
    """The values as they are."""

    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[IN]:
        yield from inputs


class PassThroughAllWindowFunction(AllWindowFunction[IN, IN, W]):
    """The values as they are."""

    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[IN]:
        yield from inputs


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """All values of a window of one key, with a context."""

    class Context(Parametrised, ABC):
        """Of one window."""

        @abstractmethod
        def window(self) -> Any: ...

        @abstractmethod
        def current_processing_time(self) -> int: ...

        @abstractmethod
        def current_watermark(self) -> int: ...

        @abstractmethod
        def window_state(self) -> KeyedStateStore: ...

        @abstractmethod
        def global_state(self) -> KeyedStateStore: ...

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context, elements: Iterable[IN]
    ) -> Iterable[OUT]: ...

    def clear(self, context: ProcessWindowFunction.Context) -> None:
        """The window is over: clear what `window_state` holds."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """All values of a window of an unkeyed stream, with a context."""

    class Context(Parametrised, ABC):
        """Of one window."""

        @abstractmethod
        def window(self) -> Any: ...

        @abstractmethod
        def window_state(self) -> KeyedStateStore: ...

        @abstractmethod
        def global_state(self) -> KeyedStateStore: ...

    @abstractmethod
    def process(
        self, context: ProcessAllWindowFunction.Context, elements: Iterable[IN]
    ) -> Iterable[OUT]: ...

    def clear(self, context: ProcessAllWindowFunction.Context) -> None:
        """The window is over."""


class SourceFunction:
    """Names a Java class in PyFlink; there are none here."""

    def __new__(cls, *_arguments: object, **_named: object) -> NoReturn:
        """Here and not in `__init__`, which classes derived from it have of their own."""
        raise NotImplementedError(
            f"{_derived(cls, SourceFunction)} wraps a Java class. Use env.from_source with a Source of "
            "penstock.datastream.connectors, or a subclass of its Source."
        )

    def __init__(self, source_func: Any) -> None: ...


class SinkFunction:
    """Names a Java class in PyFlink; there are none here."""

    def __new__(cls, *_arguments: object, **_named: object) -> NoReturn:
        """As SourceFunction's."""
        raise NotImplementedError(
            f"{_derived(cls, SinkFunction)} wraps a Java class. Use sink_to with a Sink of "
            "penstock.datastream.connectors, or a subclass of its Sink."
        )

    def __init__(self, sink_func: Any) -> None: ...


def _derived(cls: type, base: type) -> str:
    return base.__name__ if cls is base else f"{cls.__name__} extends {base.__name__}, which"


class AsyncFunction(Parametrised, Function):
    """A coroutine per value; many run at once on one event loop. `open` runs on the task's thread.

    A method without `async` runs on a pool of threads instead.
    """

    @abstractmethod
    async def async_invoke(self, value: Any) -> list[Any]:
        """The results of a value, as a list."""

    def timeout(self, value: Any) -> list[Any]:
        """Results when `async_invoke` took too long; by default the job fails."""
        raise TimeoutError("Async function call has timed out for input: " + str(value))


@dataclass(frozen=True)
class AsyncFunctionDescriptor:
    """What AsyncDataStream is told about a function."""

    class OutputMode(Enum):
        ORDERED = 0
        UNORDERED = 1

    async_function: AsyncFunction
    timeout: Any
    capacity: int
    async_retry_strategy: AsyncRetryStrategy
    output_mode: OutputMode
