"""Classes that user functions may extend. Does not know any operator: the engine calls them by duck typing.

Source: pyflink.datastream.functions; differs: sources and sinks are Python classes of their own
(`penstock.datastream.connectors`), so SourceFunction and SinkFunction only raise an error that says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NoReturn, TypeAlias

from penstock.datastream.functions.type_variables import ACC, IN, IN1, IN2, KEY, OUT, K, T, W
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.time_domain import TimeDomain
from penstock.datastream.timerservice import TimerService
from penstock.engine.model.parametrised import OfOne, X
from penstock.engine.runtime.context import KeyedStateStore, RuntimeContext, neutral
from penstock.engine.runtime.operators.async_retry import AsyncRetryStrategy

Results: TypeAlias = Iterable[OUT | tuple[OutputTag, Any]] | None
"""What a process function returns: results and side outputs, or nothing."""


class Function(ABC):  # ruff: ignore[abstract-base-class-without-abstract-method]
    """The base of all functions of a program.

    A task opens it once per attempt, and closes it once.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Prepare, before the first record: connections, models and state handles belong here."""

    def close(self) -> None:
        """Release what `open` took, after the last record and after a failure."""


class MapFunction(Function, Generic[IN, OUT]):
    """Turns each value into one result."""

    @abstractmethod
    def map(self, value: IN) -> OUT:
        """Return the result for one value."""


class FlatMapFunction(Function, Generic[IN, OUT]):
    """Turns each value into any number of results: a generator, or another iterable."""

    @abstractmethod
    def flat_map(self, value: IN) -> Iterable[OUT]:
        """Return the results for one value."""


class FilterFunction(Function, Generic[IN]):
    """Keeps the values for which `filter` returns true."""

    @abstractmethod
    def filter(self, value: IN) -> bool:
        """Return whether to keep the value."""


class ReduceFunction(Function, Generic[T]):
    """Combines two values into one of the same type."""

    @abstractmethod
    def reduce(self, value1: T, value2: T) -> T:
        """Return the combination of the two values."""


class KeySelector(Function, Generic[IN, OUT]):
    """Returns the key of a value; the same value must always have the same key."""

    @abstractmethod
    def get_key(self, value: IN) -> OUT:
        """Return the key of the value."""


class NullByteKeySelector(KeySelector[Any, int]):
    """Gives all values the same key."""

    def get_key(self, value: Any) -> int:
        """Return 0."""
        return 0


class Partitioner(Function, Generic[IN]):
    """Chooses the channel of a key."""

    @abstractmethod
    def partition(self, key: IN, num_partitions: int) -> int:
        """Return the channel of the key: 0 <= channel < num_partitions."""


class AggregateFunction(Function, Generic[IN, ACC, OUT]):
    """Aggregates values in an accumulator. Only merging (session) windows need `merge`."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Return a new, empty accumulator."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC) -> ACC:
        """Return the accumulator with the value added."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT:
        """Return the accumulator's result."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC) -> ACC:
        """Return one accumulator with the values of both."""


class ProcessFunction(Function, Generic[IN, OUT]):
    """Processes values with timestamps; returns results and side outputs (`yield tag, value`)."""

    class Context(ABC):
        """Describes the element that is being processed."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the current times; timers need a keyed stream."""

        @abstractmethod
        def timestamp(self) -> int:
            """Return the element's event time in epoch ms; -2^63 if it has none."""

    @abstractmethod
    def process_element(self, value: IN, ctx: ProcessFunction.Context) -> Results[OUT]:
        """Return the results for one element; None: no result."""


class KeyedProcessFunction(Function, Generic[KEY, IN, OUT]):
    """Processes values with keyed state and timers; returns results as ProcessFunction does."""

    class Context(ABC):
        """Describes the element that is being processed."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the element's key."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the current times and the timers of the key."""

        @abstractmethod
        def timestamp(self) -> int:
            """Return the element's event time in epoch ms; -2^63 if it has none."""

    class OnTimerContext(Context):
        """Describes the timer that fires; `timestamp()` is the timer's time."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return whether the timer is one of event time or of processing time."""

    @abstractmethod
    def process_element(self, value: IN, ctx: KeyedProcessFunction.Context) -> Results[OUT]:
        """Return the results for one element; None: no result."""

    @neutral
    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Results[OUT]:
        """Return the results for a timer of the current key that fires; `timestamp` in epoch ms."""
        return None


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """Turns each value of two connected streams into one result."""

    @abstractmethod
    def map1(self, value: IN1) -> OUT:
        """Return the result for one value of the first stream."""

    @abstractmethod
    def map2(self, value: IN2) -> OUT:
        """Return the result for one value of the second stream."""


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """Turns each value of two connected streams into any number of results."""

    @abstractmethod
    def flat_map1(self, value: IN1) -> Iterable[OUT]:
        """Return the results for one value of the first stream."""

    @abstractmethod
    def flat_map2(self, value: IN2) -> Iterable[OUT]:
        """Return the results for one value of the second stream."""


class CoProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """Processes the values of two connected streams, with their timestamps."""

    class Context(ProcessFunction.Context):
        """Describes the element that is being processed, as that of a ProcessFunction does."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: CoProcessFunction.Context) -> Results[OUT]:
        """Return the results for one element of the first stream; None: no result."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: CoProcessFunction.Context) -> Results[OUT]:
        """Return the results for one element of the second stream; None: no result."""


class KeyedCoProcessFunction(Function, Generic[KEY, IN1, IN2, OUT]):
    """Processes two keyed streams, which share keyed state and timers."""

    class Context(KeyedProcessFunction.Context):
        """Describes the element that is being processed, as that of a KeyedProcessFunction does."""

    class OnTimerContext(Context, KeyedProcessFunction.OnTimerContext):
        """Describes the timer that fires, as that of a KeyedProcessFunction does."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: KeyedCoProcessFunction.Context) -> Results[OUT]:
        """Return the results for one element of the first stream; None: no result."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: KeyedCoProcessFunction.Context) -> Results[OUT]:
        """Return the results for one element of the second stream; None: no result."""

    @neutral
    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Results[OUT]:
        """Return the results for a timer of the current key that fires; `timestamp` in epoch ms."""
        return None


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Turns all values of one key's window into results."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """Return the results for one window that fires."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Turns all values of an unkeyed stream's window into results."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """Return the results for one window that fires."""


class PassThroughWindowFunction(WindowFunction[T, T, K, W]):
    """Emits the values of the window unchanged."""

    def apply(self, key: K, window: W, inputs: Iterable[T]) -> Iterable[T]:
        """Return the values of the window, in their order."""
        yield from inputs


class PassThroughAllWindowFunction(AllWindowFunction[T, T, W]):
    """Emits the values of the window unchanged."""

    def apply(self, window: W, inputs: Iterable[T]) -> Iterable[T]:
        """Return the values of the window, in their order."""
        yield from inputs


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Turns all values of one key's window into results; a context gives times and state."""

    class Context(OfOne[X], ABC):
        """Describes the window that fires."""

        @abstractmethod
        def window(self) -> X:
            """Return the window."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the processing time in epoch ms."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark in epoch ms."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """Return the state of this key and window; `clear` must clear what it holds."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """Return the state of this key, which all its windows share."""

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Results[OUT]:
        """Return the results for one window that fires; None: no result."""

    @neutral
    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """Clear what `window_state` holds: the window is removed."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Turns an unkeyed stream's window into results; a context gives window and state."""

    class Context(OfOne[X], ABC):
        """Describes the window that fires."""

        @abstractmethod
        def window(self) -> X:
            """Return the window."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """Return the state of this window; `clear` must clear what it holds."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """Return the state that all windows share."""

    @abstractmethod
    def process(
        self, context: ProcessAllWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Results[OUT]:
        """Return the results for one window that fires; None: no result."""

    @neutral
    def clear(self, context: ProcessAllWindowFunction.Context[W]) -> None:
        """Clear what `window_state` holds: the window is removed."""


class SourceFunction:
    """Wraps a Java source function in PyFlink. There are none here; use `env.from_source`."""

    def __new__(cls, *_arguments: object, **_named: object) -> NoReturn:
        """Raises. It is not in `__init__`, because derived classes define an `__init__` of their own."""
        raise NotImplementedError(
            f"{_derived(cls, SourceFunction)} wraps a Java class. Use env.from_source with a Source of "
            "penstock.datastream.connectors, or a subclass of its Source."
        )

    def __init__(self, source_func: Any) -> None: ...


class SinkFunction:
    """Wraps a Java sink function in PyFlink. There are none here; use `stream.sink_to`."""

    def __new__(cls, *_arguments: object, **_named: object) -> NoReturn:
        """Raises, as in SourceFunction."""
        raise NotImplementedError(
            f"{_derived(cls, SinkFunction)} wraps a Java class. Use sink_to with a Sink of "
            "penstock.datastream.connectors, or a subclass of its Sink."
        )

    def __init__(self, sink_func: Any) -> None: ...


def _derived(cls: type, base: type) -> str:
    return base.__name__ if cls is base else f"{cls.__name__} extends {base.__name__}, which"


class AsyncFunction(Function, Generic[IN, OUT]):
    """Runs a coroutine for each value; many run at once on one event loop.

    `open` runs on the task's thread. An `async_invoke` without `async` runs on a pool of threads.
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """Return the results for one value as a list."""

    def timeout(self, value: IN) -> list[OUT]:
        """Return the results for a value whose `async_invoke` took too long.

        By default the job fails.
        """
        raise TimeoutError("Async function call has timed out for input: " + str(value))


@dataclass(frozen=True)
class AsyncFunctionDescriptor:
    """Describes to AsyncDataStream how to run a function."""

    class OutputMode(Enum):
        """The order of results: that of the records (ORDERED), or as they are ready (UNORDERED)."""

        ORDERED = 0
        UNORDERED = 1

    async_function: AsyncFunction[Any, Any]
    timeout: Any
    capacity: int
    async_retry_strategy: AsyncRetryStrategy
    output_mode: OutputMode
