"""Metrics of user functions: the objects that functions change, and the plain numbers that a task reports of them.

Counters, meters and distributions are changed on the task's thread and read from other threads without a lock, so a reading may be one
batch old. A gauge calls the user's code, so it is called on the task's thread only, and its last value is reported.
Source: Flink MetricGroup, PyFlink metricbase; differs: the metrics are kept in the task's own process. Does not know a clock,
so a meter reports its count, not a rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Final, TypeVar

from penstock.engine.model.messages import UserMetric
from penstock.engine.model.metrics import Group, Groups
from penstock.engine.model.texts.bounded_text import bounded_repr

MOST_NUMBERS: Final = 200
"""How many numbers one task reports with each heartbeat. The others are only counted."""
MOST_CHARACTERS: Final = 200
"""The longest name of a metric, including its groups."""

M = TypeVar("M", bound="Metric")


class Metric:
    """The base of the metrics that functions register."""

    def numbers(self) -> Iterator[tuple[str, float]]:
        """Return what is reported, as (suffix of the metric's name, number)."""
        return iter(())


class Counter(Metric):
    """Counts up and down."""

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        """Add `n`."""
        self._count += n

    def dec(self, n: int = 1) -> None:
        """Subtract `n`."""
        self._count -= n

    def get_count(self) -> int:
        """Return the count so far, of this subtask."""
        return self._count

    def numbers(self) -> Iterator[tuple[str, float]]:
        yield "", self._count


class Distribution(Metric):
    """Reports sum, count, minimum and maximum of ints."""

    def __init__(self) -> None:
        self.sum = 0
        self.count = 0
        self.min: int | None = None
        self.max: int | None = None

    def update(self, value: int) -> None:
        """Add a value."""
        self.sum += value
        self.count += 1
        self.min = value if self.min is None else min(self.min, value)
        self.max = value if self.max is None else max(self.max, value)

    def numbers(self) -> Iterator[tuple[str, float]]:
        yield ".count", self.count
        yield ".sum", self.sum
        if self.min is not None:
            yield ".min", self.min
        if self.max is not None:
            yield ".max", self.max


class Meter(Metric):
    """Counts events; the metrics system computes the rate."""

    def __init__(self, time_span_in_seconds: int = 60) -> None:
        self.time_span_in_seconds = time_span_in_seconds
        self._count = 0

    def mark_event(self, value: int = 1) -> None:
        """Count `value` events."""
        self._count += value

    def get_count(self) -> int:
        """Return how many events were counted so far, in this subtask."""
        return self._count

    def numbers(self) -> Iterator[tuple[str, float]]:
        yield ".count", self._count


class Gauge(Metric):
    """A function of the user's that returns a number, and the last number that it returned."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._last: float | None = None
        self._has_complained = False

    def update(self) -> str | None:
        """Call the function, on the task's thread. Returns why it gave no number, but only for the first of several such calls."""
        try:
            number = self._function()
            self._last = _plain(number)
        except Exception as error:
            # A gauge that fails must not end the task.
            self._last, complaint = None, f"raised {type(error).__name__}: {error}"
        else:
            complaint = (
                f"returned {bounded_repr(number, 200)}, expected a number"
                if self._last is None
                else ""
            )
        is_new = bool(complaint) and not self._has_complained
        self._has_complained = bool(complaint)
        return complaint if is_new else None

    @property
    def last(self) -> float | None:
        """The number that the function returned last; None: it gave none."""
        return self._last

    def numbers(self) -> Iterator[tuple[str, float]]:
        if self._last is not None:
            yield "", self._last


def _plain(value: object) -> float | None:
    """The number as a Python int or float; None: it is not a number."""
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else None


@dataclass(slots=True)
class MetricGroup:
    """Holds the named metrics of one operator; groups can be nested."""

    path: Groups = ()
    is_for_functions: bool = True
    """False: functions do not get it (`python.metric.enabled`)."""
    metrics: dict[str, Metric] = field(default_factory=dict)
    groups: dict[Group, MetricGroup] = field(default_factory=dict)

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Return a sub-group called `name`; with `extra`, `name` is a key and `extra` its value.

        The same group comes back for the same name and kind. Reporters with tags show a key as a tag.
        """
        inner = str(name), None if extra is None else str(extra)
        return self.groups.setdefault(inner, MetricGroup((*self.path, inner)))

    def counter(self, name: str) -> Counter:
        """Return the counter of this name; the first call registers it."""
        return self._named(name, Counter, Counter)

    def gauge(self, name: str, obj: Callable[[], int]) -> None:
        """Register a gauge: a function that returns an int whenever metrics are reported.

        A second function of the same name replaces the first.
        """
        if not callable(obj):
            raise TypeError(
                f"gauge {name!r} takes a function that returns its value, got "
                f"{bounded_repr(obj, 200)}"
            )
        self._named(name, Gauge, lambda: Gauge(obj))  # Refuses the name of another kind.
        self.metrics[name] = Gauge(obj)

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Return the meter of this name; the first call registers it."""
        return self._named(name, Meter, lambda: Meter(time_span_in_seconds))

    def distribution(self, name: str) -> Distribution:
        """Return the distribution of this name; the first call registers it."""
        return self._named(name, Distribution, Distribution)

    def walk(self) -> Iterator[tuple[Groups, str, Metric]]:
        """All metrics of this group and of the groups below it, with their groups and names. Any thread: functions may
        add some meanwhile.
        """
        for name, metric in list(self.metrics.items()):
            yield self.path, name, metric
        for group in list(self.groups.values()):
            yield from group.walk()

    def _named(self, name: str, kind: type[M], make: Callable[[], M]) -> M:
        found = self.metrics.setdefault(name, make())
        if not isinstance(found, kind):
            raise TypeError(
                f"metric {name!r} is a {type(found).__name__.lower()} already, so it cannot be a "
                f"{kind.__name__.lower()}. Give one of them another name."
            )
        return found


def whole_name(groups: Groups, name: str) -> str:
    """The name with its groups, separated by dots."""
    return ".".join([*(word for pair in groups for word in pair if word is not None), name])


class UserMetrics:
    """The metrics of all operators of a task. `is_for_functions`: whether functions get a group to register metrics in."""

    def __init__(self, is_for_functions: bool = True) -> None:
        self._groups: dict[str, tuple[str, MetricGroup]] = {}
        self._is_for_functions = is_for_functions

    def group_of(self, operator_id: str, operator: str) -> MetricGroup:
        """A new group, for an operator that is opened."""
        group = MetricGroup(is_for_functions=self._is_for_functions)
        self._groups[operator_id] = operator, group
        return group

    def numbers(self) -> tuple[tuple[UserMetric, ...], int]:
        """At most MOST_NUMBERS numbers, and how many were left out. Any thread."""
        found: list[UserMetric] = []
        left_out = 0
        for operator_id, operator, name, metric in self._all():
            for suffix, number in metric.numbers():
                value = _plain(number)
                if len(found) == MOST_NUMBERS or len(name) > MOST_CHARACTERS or value is None:
                    left_out += 1
                else:
                    found.append(UserMetric(operator_id, operator, name + suffix, value))
        return tuple(found), left_out

    @property
    def has_gauges(self) -> bool:
        """Whether there are gauges. Any thread."""
        return any(isinstance(metric, Gauge) for *_, metric in self._all())

    def update_gauges(self) -> list[str]:
        """Call all gauges, on the task's thread. Returns complaints about gauges that gave no number for the first time in a row."""
        complaints = []
        for _, operator, name, metric in self._all():
            complaint = metric.update() if isinstance(metric, Gauge) else None
            if complaint is not None:
                complaints.append(f"gauge {name!r} of operator '{operator}' {complaint}")
        return complaints

    def of(self, operator_id: str) -> Iterator[tuple[Groups, str, Metric]]:
        """The metrics of one operator, with their groups and names. Any thread."""
        found = self._groups.get(operator_id)
        return iter(()) if found is None else found[1].walk()

    def _all(self) -> Iterator[tuple[str, str, str, Metric]]:
        for operator_id, (operator, group) in list(self._groups.items()):
            for groups, name, metric in group.walk():
                yield operator_id, operator, whole_name(groups, name), metric
