"""What user functions see of the runtime: UserFunction, RuntimeContext, metrics.

Knows no operator. Source: PyFlink RuntimeContext, MetricGroup; differs: metrics live in this process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.runtime.operator import OperatorContext
from penstock.runtime.state.contract import (
    AggregatingState,
    AggregatingStateDescriptor,
    KeyedStateBackend,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)

_NOT_KEYED = "This state is only accessible by functions executed on a KeyedStream."


@dataclass(slots=True)
class UserFunction:
    """A user's callable, and the Function object that it belongs to (it has `open` and `close`).

    For functions with several methods (process functions, aggregates) `owner` is the object and `call`
    its main method.
    """

    call: Callable[..., Any]
    owner: Any = None

    def open(self, runtime_context: RuntimeContext) -> None:
        """The owner's `open`, if it has one."""
        method = getattr(self.owner, "open", None)
        if callable(method):
            method(runtime_context)

    def close(self) -> None:
        """The owner's `close`, if it has one."""
        method = getattr(self.owner, "close", None)
        if callable(method):
            method()

    def method(self, name: str) -> Callable[..., Any] | None:
        """Another method of the owner, or None."""
        found = getattr(self.owner, name, None)
        return found if callable(found) else None

    def does(self, name: str) -> bool:
        """Whether the owner has this method, and it does something."""
        method = self.method(name)
        return method is not None and not getattr(method, "is_neutral", False)


def neutral(method: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a method of a base class that does nothing: an operator may leave out what would lead to its call."""
    method.is_neutral = True  # type: ignore[attr-defined] # which functions may have any of
    return method


class Metric:
    """What functions count with."""


class Counter(Metric):
    """A number that goes up and down."""

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        self._count += n

    def dec(self, n: int = 1) -> None:
        self._count -= n

    def get_count(self) -> int:
        return self._count


class Distribution(Metric):
    """Sum, count, minimum and maximum of ints."""

    def __init__(self) -> None:
        self.sum = 0
        self.count = 0
        self.min: int | None = None
        self.max: int | None = None

    def update(self, value: int) -> None:
        self.sum += value
        self.count += 1
        self.min = value if self.min is None else min(self.min, value)
        self.max = value if self.max is None else max(self.max, value)


class Meter(Metric):
    """Counts events; rates are for whoever has a clock."""

    def __init__(self, time_span_in_seconds: int = 60) -> None:
        self.time_span_in_seconds = time_span_in_seconds
        self._count = 0

    def mark_event(self, value: int = 1) -> None:
        self._count += value

    def get_count(self) -> int:
        return self._count


@dataclass(slots=True)
class MetricGroup:
    """Named metrics of one operator; groups nest."""

    path: tuple[str, ...] = ()
    metrics: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, MetricGroup] = field(default_factory=dict)

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """A sub-group; with `extra`, a key and its value."""
        inner = self.groups.setdefault(name, MetricGroup((*self.path, name)))
        return inner if extra is None else inner.add_group(extra)

    def counter(self, name: str) -> Counter:
        found: Counter = self.metrics.setdefault(name, Counter())
        return found

    def gauge(self, name: str, obj: Callable[[], int]) -> None:
        if not callable(obj):
            raise TypeError(
                f"gauge {name!r} takes a function that tells its value, got {obj!r:.200}"
            )
        self.metrics[name] = obj

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        found: Meter = self.metrics.setdefault(name, Meter(time_span_in_seconds))
        return found

    def distribution(self, name: str) -> Distribution:
        found: Distribution = self.metrics.setdefault(name, Distribution())
        return found


class KeyedStateStore:
    """Getters of keyed state, in the namespace that the backend has."""

    def __init__(self, backend: KeyedStateBackend | None) -> None:
        self._backend = backend

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState:
        return self._keyed(state_descriptor, ValueStateDescriptor).get_state(state_descriptor)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        return self._keyed(state_descriptor, ListStateDescriptor).get_list_state(state_descriptor)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState:
        return self._keyed(state_descriptor, MapStateDescriptor).get_map_state(state_descriptor)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState:
        return self._keyed(state_descriptor, ReducingStateDescriptor).get_reducing_state(
            state_descriptor
        )

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState:
        return self._keyed(state_descriptor, AggregatingStateDescriptor).get_aggregating_state(
            state_descriptor
        )

    def _keyed(self, descriptor: object, expected: type) -> KeyedStateBackend:
        if not isinstance(descriptor, expected):
            raise TypeError(f"this kind of state takes a {expected.__name__}, got {descriptor!r}")
        if self._backend is None:
            raise RuntimeError(_NOT_KEYED)
        return self._backend


class RuntimeContext(KeyedStateStore):
    """Handed to `open` of user functions."""

    def __init__(self, context: OperatorContext, backend: KeyedStateBackend | None = None) -> None:
        super().__init__(backend)
        self._context = context
        self._metrics = MetricGroup()

    def get_task_name(self) -> str:
        return self._context.task_name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._context.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._context.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._context.subtask

    def get_attempt_number(self) -> int:
        return self._context.attempt

    def get_task_name_with_subtasks(self) -> str:
        context = self._context
        return (
            f"{context.task_name} ({context.subtask + 1}/{context.parallelism})#{context.attempt}"
        )

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return self._context.job_parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        return self._metrics

    get_metric_group = get_metrics_group
