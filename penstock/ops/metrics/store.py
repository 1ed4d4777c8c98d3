"""The metrics of a driver: what its TaskManagers reported last, and what it measured itself. Views and reporters ask only here.

It keeps the current attempt of each subtask. Values are overwritten and never age. Belongs to one thread, the one that folds
events. Source: Flink MetricStore, MetricFetcherImpl; differs: TaskManagers report by themselves, so nothing has to be fetched.

Values of several entities as one: the aggregating endpoints of REST. Source: Flink AbstractAggregatingMetricsHandler.

A metric that one of the entities lacks does not count for it, also not for the average. A metric with a value that is no number is left out. If no entity
has one of the metrics, the answer has none at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from penstock.engine.metrics.report_format import Received, ReportDecoder
from penstock.engine.metrics.scopes import Component, Place, query_id
from penstock.engine.metrics.values import as_number, rest_text, rest_values
from penstock.engine.model.metrics import Measured, Value
from penstock.ops.metrics.entities import (
    CoordinatorScope,
    JobManagerScope,
    JobScope,
    ReportedMetric,
    Scope,
    SubtaskScope,
    TaskManagerScope,
    VertexScope,
)

_MOST_SKEW: Final = 100.0


class Aggregation(StrEnum):
    """How to make one number of several."""

    MIN = "min"
    MAX = "max"
    AVG = "avg"
    SUM = "sum"
    SKEW = "skew"


ALL: Final = frozenset(Aggregation)


@dataclass(frozen=True, slots=True)
class Aggregated:
    """One metric over several entities."""

    id: str
    numbers: Mapping[Aggregation, float]


def aggregated(
    ids: Sequence[str],
    entities: Sequence[Mapping[str, str]],
    wanted: frozenset[Aggregation] = ALL,
) -> list[Aggregated]:
    """One entry for each id. `entities`: the values of each entity, as `MetricStore.values` gives them."""
    found: list[Aggregated] = []
    for one in ids:
        texts = [values[one] for values in entities if one in values]
        if not texts:
            return []
        numbers = [number for text in texts if (number := as_number(text)) is not None]
        if len(numbers) == len(texts):
            found.append(Aggregated(one, _aggregates(numbers, wanted)))
    return found


def skew(numbers: Sequence[float]) -> float:
    """How unequal the numbers are, in percent: 0 if all are equal, at most 100."""
    mean = sum(numbers) / len(numbers)
    if mean == 0:
        return 0.0
    deviation = sum(abs(number - mean) for number in numbers) / len(numbers)
    return min(_MOST_SKEW, deviation / mean * 100)


def _aggregates(
    numbers: Sequence[float], wanted: frozenset[Aggregation]
) -> dict[Aggregation, float]:
    total = sum(numbers)
    every = {
        Aggregation.MIN: min(numbers),
        Aggregation.MAX: max(numbers),
        Aggregation.AVG: total / len(numbers),
        Aggregation.SUM: total,
        Aggregation.SKEW: skew(numbers),
    }
    return {kind: number for kind, number in every.items() if kind in wanted}


NOT_AFTER_THE_END: Final = frozenset({
    "idleTimeMsPerSecond", "busyTimeMsPerSecond", "backPressuredTimeMsPerSecond",
})  # fmt: skip
"""Metrics of a task that are gone when the task has ended. The others keep their last value."""


@dataclass(slots=True)
class _Attempt:
    """The current attempt of a subtask, with its sections by component and operator."""

    attempt: int
    sections: dict[tuple[Component, str], Received] = field(default_factory=dict)
    process: Mapping[str, str] = field(default_factory=dict)
    is_ended: bool = False

    def value(self, rest_id: str) -> tuple[Value, str] | None:
        """The value with this id, and which statistic of it is meant."""
        for section in self.sections.values():
            found = section.description.index.get(rest_id)
            if found is not None:
                return None if self._is_gone(rest_id) else (section.value(found[0]), found[1])
        return None

    def ids(self) -> Iterator[str]:
        for section in self.sections.values():
            for rest_id in section.description.index:
                if not self._is_gone(rest_id):
                    yield rest_id

    def _is_gone(self, rest_id: str) -> bool:
        return self.is_ended and rest_id in NOT_AFTER_THE_END


@dataclass(slots=True)
class _Own:
    """What was put for one place."""

    place: Place
    metrics: Sequence[Measured]


@dataclass(slots=True)
class _Job:
    own: _Own | None = None
    coordinators: dict[str, dict[str, _Own]] = field(default_factory=dict)
    vertices: dict[str, dict[int, _Attempt]] = field(default_factory=dict)
    is_ended: bool = False

    def subtasks(self, vertex_id: str) -> dict[int, _Attempt]:
        return self.vertices.setdefault(vertex_id, {})


class MetricStore:
    """See the module. `unreadable`: how many sections were skipped, because nobody had described them yet."""

    def __init__(self) -> None:
        self._decoder = ReportDecoder()
        self._jobmanager: _Own | None = None
        self._processes: dict[str, _Own] = {}
        self._jobs: dict[str, _Job] = {}
        self.unreadable = 0

    # ------------------------------------------------------------------ what comes in

    def report(self, payload: bytes) -> None:
        """Take the payload of a `MetricsReport`.

        What is of a former attempt is dropped. Raises: ExternalError: the payload cannot be read; nothing has changed.
        """
        report = self._decoder.decode(payload)
        self.unreadable += report.skipped
        for section in report.sections:
            if section.description.component is Component.TASKMANAGER:
                place = Place(Component.TASKMANAGER, report.variables)
                own = _Own(place, tuple(section.measured()))
                self._processes[report.variables["tm_id"]] = own
            else:
                self._take(section, report.variables)

    def put(self, place: Place, metrics: Iterable[Measured]) -> None:
        """Replace what the driver has measured of a place: JOBMANAGER, JM_JOB or JM_OPERATOR."""
        own, variables = _Own(place, tuple(metrics)), place.variables
        if place.component is Component.JOBMANAGER:
            self._jobmanager = own
        elif place.component is Component.JM_JOB:
            self._job(variables["job_id"]).own = own
        elif place.component is Component.JM_OPERATOR:
            of_vertex = self._job(variables["job_id"]).coordinators
            of_vertex.setdefault(variables["task_id"], {})[variables["operator_id"]] = own
        else:
            raise ValueError(f"{place.component} is reported by TaskManagers, not put")

    def attempt_began(self, job_id: str, vertex_id: str, subtask: int, attempt: int) -> None:
        """A new attempt of a subtask was deployed: metrics of former ones go."""
        subtasks = self._job(job_id).subtasks(vertex_id)
        known = subtasks.get(subtask)
        if known is None or known.attempt < attempt:
            subtasks[subtask] = _Attempt(attempt)

    def attempt_ended(self, job_id: str, vertex_id: str, subtask: int, attempt: int) -> None:
        """An attempt has ended: its shares of time go, everything else keeps its last value."""
        self.attempt_began(job_id, vertex_id, subtask, attempt)
        known = self._job(job_id).subtasks(vertex_id)[subtask]
        if known.attempt == attempt:
            known.is_ended = True

    def job_ended(self, job_id: str) -> None:
        """The job has ended: reporters do not show it any more, REST does."""
        self._job(job_id).is_ended = True

    def forget_taskmanager(self, tm_id: str) -> None:
        """The TaskManager is gone. The last values of its tasks stay."""
        self._processes.pop(tm_id, None)

    def forget_job(self, job_id: str) -> None:
        self._jobs.pop(job_id, None)

    def _take(self, section: Received, process: Mapping[str, str]) -> None:
        """Keep the section of a task or an operator, unless it is of a former attempt."""
        variables = section.description.variables
        job_id, vertex_id = variables["job_id"], variables["task_id"]
        self.attempt_began(job_id, vertex_id, section.subtask, section.attempt)
        known = self._job(job_id).subtasks(vertex_id)[section.subtask]
        if known.attempt != section.attempt:
            return
        if known.process is not process:
            known.sections.clear()  # A report is complete: what it does not have is gone.
        known.process = process
        key = section.description.component, variables.get("operator_id", "")
        known.sections[key] = section

    def _job(self, job_id: str) -> _Job:
        return self._jobs.setdefault(job_id, _Job())

    # ------------------------------------------------------------------ REST

    def values(self, scope: Scope, ids: Iterable[str] | None = None) -> dict[str, str]:
        """The values of a scope by id, as REST prints them. `ids` None: all. Unknown ids and scopes have none."""
        if isinstance(scope, SubtaskScope | VertexScope):
            wanted = self.ids(scope) if ids is None else ids
            found = ((one, self._find(scope, one)) for one in wanted)
            return {one: rest_text(*value) for one, value in found if value is not None}
        everything = _texts(self._owned(scope))
        return everything if ids is None else {i: everything[i] for i in ids if i in everything}

    def ids(self, scope: Scope) -> list[str]:
        """The ids of a scope."""
        if isinstance(scope, SubtaskScope):
            attempt = self._attempt(scope)
            return [] if attempt is None else list(attempt.ids())
        if isinstance(scope, VertexScope):
            subtasks = self._subtasks(scope.job_id, scope.vertex_id)
            return [f"{i}.{one}" for i, attempt in subtasks.items() for one in attempt.ids()]
        return list(_texts(self._owned(scope)))

    def measured(self, scope: SubtaskScope) -> Iterator[Measured]:
        """All metrics of a subtask and its operators, with their groups as they are."""
        attempt = self._attempt(scope)
        for section in () if attempt is None else attempt.sections.values():
            yield from section.measured()

    def value(self, scope: Scope, rest_id: str) -> Value | None:
        """One value with its type; None: there is none. A statistic of a histogram gives the whole histogram."""
        if isinstance(scope, SubtaskScope | VertexScope):
            found = self._find(scope, rest_id)
            return None if found is None else found[0]
        for one, rest in _named(self._owned(scope)):
            if rest == rest_id:
                return one.value
        return None

    def aggregate(
        self,
        scopes: Sequence[Scope],
        ids: Iterable[str],
        wanted: frozenset[Aggregation] = ALL,
    ) -> list[Aggregated]:
        """Each metric over these entities: subtasks, jobs or TaskManagers. See `aggregation`."""
        named = list(ids)
        return aggregated(named, [self.values(scope, named) for scope in scopes], wanted)

    def ids_of(self, scopes: Iterable[Scope]) -> list[str]:
        """The ids that any of these entities has, each once."""
        return list(dict.fromkeys(one for scope in scopes for one in self.ids(scope)))

    # ------------------------------------------------------------------ reporters

    def metrics(self, *, with_ended: bool = False) -> Iterator[ReportedMetric]:
        """All metrics. `with_ended`: also of subtasks and jobs that have ended, which Flink's reporters do not show any more."""
        jobs = [job for job in self._jobs.values() if with_ended or not job.is_ended]
        for own in self._all_owned(jobs):
            for one in own.metrics:
                yield ReportedMetric(own.place, one)
        for job in jobs:
            for subtasks in job.vertices.values():
                for attempt in subtasks.values():
                    if with_ended or not attempt.is_ended:
                        yield from _metrics_of(attempt)

    def _all_owned(self, jobs: Iterable[_Job]) -> Iterator[_Own]:
        if self._jobmanager is not None:
            yield self._jobmanager
        yield from self._processes.values()
        for job in jobs:
            if job.own is not None:
                yield job.own
            for of_vertex in job.coordinators.values():
                yield from of_vertex.values()

    # ------------------------------------------------------------------ finding

    def _owned(self, scope: Scope) -> list[_Own]:
        """What was put, or reported of a process."""
        found: list[_Own | None] = []
        match scope:
            case JobManagerScope():
                found = [self._jobmanager]
            case TaskManagerScope(tm_id):
                found = [self._processes.get(tm_id)]
            case JobScope(job_id):
                found = [self._known(job_id).own]
            case CoordinatorScope(job_id, vertex_id):
                found = [*self._known(job_id).coordinators.get(vertex_id, {}).values()]
        return [own for own in found if own is not None]

    def _known(self, job_id: str) -> _Job:
        return self._jobs.get(job_id) or _Job()

    def _subtasks(self, job_id: str, vertex_id: str) -> dict[int, _Attempt]:
        return self._known(job_id).vertices.get(vertex_id, {})

    def _attempt(self, scope: SubtaskScope) -> _Attempt | None:
        return self._subtasks(scope.job_id, scope.vertex_id).get(scope.subtask)

    def _find(self, scope: SubtaskScope | VertexScope, rest_id: str) -> tuple[Value, str] | None:
        if isinstance(scope, VertexScope):
            subtask, _, rest_id = rest_id.partition(".")
            if not subtask.isdecimal():
                return None
            scope = SubtaskScope(scope.job_id, scope.vertex_id, int(subtask))
        attempt = self._attempt(scope)
        return None if attempt is None else attempt.value(rest_id)


def _named(owned: Iterable[_Own]) -> Iterator[tuple[Measured, str]]:
    for own in owned:
        is_operator = own.place.component is Component.JM_OPERATOR
        operator = own.place.variables["operator_name"] if is_operator else ""
        for one in own.metrics:
            yield one, query_id(one.groups, one.name, operator)


def _texts(owned: Iterable[_Own]) -> dict[str, str]:
    return dict(text for one, rest_id in _named(owned) for text in rest_values(rest_id, one.value))


def _metrics_of(attempt: _Attempt) -> Iterator[ReportedMetric]:
    for section in attempt.sections.values():
        place = Place(section.description.component, _variables(section, attempt.process))
        for one in section.measured():
            if not (attempt.is_ended and one.name in NOT_AFTER_THE_END):
                yield ReportedMetric(place, one)


def _variables(section: Received, process: Mapping[str, str]) -> dict[str, str]:
    own, subtask, attempt = section.description.variables, section.subtask, section.attempt
    return {
        **process,
        **own,
        "subtask_index": str(subtask),
        "task_attempt_num": str(attempt),
        "task_attempt_id": f"{own['job_id']}_{own['task_id']}_{subtask}_{attempt}",
    }
