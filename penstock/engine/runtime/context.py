"""What user functions see of the runtime: UserFunction and RuntimeContext.

Does not know operators. Source: PyFlink RuntimeContext.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.engine.model.errors import FinalError
from penstock.engine.runtime.operator import OperatorContext
from penstock.engine.runtime.state.contract import (
    AggregatingState,
    AggregatingStateDescriptor,
    KeyedStateBackend,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from penstock.engine.runtime.user_metrics import MetricGroup


@dataclass(slots=True)
class UserFunction:
    """A user's callable, and the Function object that it belongs to (which has `open` and `close`).

    For functions with several methods (process functions, aggregates) `owner` is the object and `call`
    its main method.
    """

    call: Callable[..., Any]
    owner: Any = None

    @property
    def name(self) -> str:
        """Of the owner's class, or of the callable."""
        owner = self.call if self.owner is None else type(self.owner)
        return str(getattr(owner, "__qualname__", owner))

    def open(self, runtime_context: RuntimeContext) -> None:
        """Call the owner's `open`, if it has one."""
        method = getattr(self.owner, "open", None)
        if callable(method):
            method(runtime_context)

    def close(self) -> None:
        """Call the owner's `close`, if it has one."""
        method = getattr(self.owner, "close", None)
        if callable(method):
            method()

    def method(self, name: str) -> Callable[..., Any] | None:
        """Another method of the owner; None if it has no such method."""
        found = getattr(self.owner, name, None)
        return found if callable(found) else None

    def does(self, name: str) -> bool:
        """Whether the owner has this method, and the method is not marked as `neutral`."""
        method = self.method(name)
        return method is not None and not getattr(method, "is_neutral", False)


def neutral(method: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a method of a base class that does nothing, so that operators can skip calling it."""
    method.is_neutral = True  # type: ignore[attr-defined] # which functions may have any of
    return method


class KeyedStateStore:
    """Gives access to keyed state, in the backend's current namespace."""

    def __init__(self, backend: KeyedStateBackend | None, function: str = "") -> None:
        """`backend`: None where there is no key. `function`: its name, for the error there."""
        self._backend = backend
        self._function = function

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState:
        """Return the value state of the descriptor, for the current key."""
        return self._keyed(state_descriptor, ValueStateDescriptor).get_state(state_descriptor)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        """Return the list state of the descriptor, for the current key."""
        return self._keyed(state_descriptor, ListStateDescriptor).get_list_state(state_descriptor)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState:
        """Return the map state of the descriptor, for the current key."""
        return self._keyed(state_descriptor, MapStateDescriptor).get_map_state(state_descriptor)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState:
        """Return the reducing state of the descriptor, for the current key."""
        return self._keyed(state_descriptor, ReducingStateDescriptor).get_reducing_state(
            state_descriptor
        )

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState:
        """Return the aggregating state of the descriptor, for the current key."""
        return self._keyed(state_descriptor, AggregatingStateDescriptor).get_aggregating_state(
            state_descriptor
        )

    def _keyed(
        self, descriptor: StateDescriptor, expected: type[StateDescriptor]
    ) -> KeyedStateBackend:
        if not isinstance(descriptor, expected):
            raise TypeError(f"this kind of state takes a {expected.__name__}, got {descriptor!r}")
        if self._backend is None:
            raise FinalError(
                f"{self._function} asks for the state {descriptor.get_name()!r}, but this state is "
                "only accessible by functions executed on a KeyedStream. Call key_by before the "
                "operator that has the function."
            )
        return self._backend


class RuntimeContext(KeyedStateStore):
    """What a function's `open` gets: facts about its task, and access to state and metrics."""

    def __init__(
        self,
        context: OperatorContext,
        function: UserFunction,
        backend: KeyedStateBackend | None = None,
    ) -> None:
        """`function`: the one that it is for. `backend`: None where there is no key."""
        super().__init__(backend, function.name)
        self._context = context

    def get_task_name(self) -> str:
        """Return the name of the task."""
        return self._context.task_name

    def get_number_of_parallel_subtasks(self) -> int:
        """Return the parallelism of the task."""
        return self._context.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the maximum parallelism: the number of key groups."""
        return self._context.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        """Return this subtask's index: 0 <= index < parallelism."""
        return self._context.subtask

    def get_attempt_number(self) -> int:
        """Return how many attempts came before this one; 0 for the first."""
        return self._context.attempt

    def get_task_name_with_subtasks(self) -> str:
        """Return name, subtask from 1, parallelism and attempt: `Map (1/4)#0`."""
        context = self._context
        return (
            f"{context.task_name} ({context.subtask + 1}/{context.parallelism})#{context.attempt}"
        )

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return a global job parameter as text, or the default value."""
        return self._context.job_parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        """Return the operator's metric group, in which the function registers its metrics; None with
        `python.metric.enabled: false`.
        """
        group = self._context.metrics
        # As in PyFlink, whose type has no None: programs are written for the usual case.
        return group if group.is_for_functions else None  # type: ignore[return-value] # PyFlink's

    get_metric_group = get_metrics_group
