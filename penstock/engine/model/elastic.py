"""Jobs whose parallelism may change: what is asked for them, their defaults, and the records of their rescales. Plain
data.

Does not know who asks, and decides nothing: `engine/machines/generations` does. Source: Flink JobResourceRequirements,
JobVertexResourceRequirements (docs/spec/elasticity.md#requirements).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.ids import VertexId
from penstock.engine.model.options.autoscaler import (
    AutoscalerMetricOptions,
    AutoscalerStepOptions,
    AutoscalerTargetOptions,
    ElasticOptions,
    ElasticProfile,
)
from penstock.engine.model.options.option import Option

UNSET: Final = -1
"""A bound that is left open: the lower one becomes 1, the upper one the max parallelism."""


@dataclass(frozen=True, slots=True)
class ParallelismBounds:
    """Fewest and most subtasks of a vertex, both included; UNSET only as long as nobody has resolved them."""

    lower: int
    upper: int

    def __str__(self) -> str:
        return f"{self.lower}..{self.upper}"


JobResourceRequirements: TypeAlias = Mapping[VertexId, ParallelismBounds]
"""The bounds of all vertices of a job. Two that are equal ask for the same."""


def requirements_to_plain(requirements: Mapping[VertexId, ParallelismBounds]) -> dict[str, Any]:
    """The form in which requirements are stored and sent: Flink's JSON, `{id: {"parallelism": {"lowerBound": 1, ...}}}`."""
    return {
        str(vertex): {"parallelism": {"lowerBound": bounds.lower, "upperBound": bounds.upper}}
        for vertex, bounds in requirements.items()
    }


def requirements_from_plain(plain: object) -> dict[str, ParallelismBounds]:
    """The bounds by what names the vertex. A bound that is missing is UNSET.

    Raises: ConfigurationError: another form; the text says where.
    """
    if not isinstance(plain, Mapping):
        raise _refusal("resource requirements", plain, "an object with an entry for each vertex")
    return {str(vertex): _bounds(str(vertex), entry) for vertex, entry in plain.items()}


def _bounds(vertex: str, entry: object) -> ParallelismBounds:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("parallelism"), Mapping):
        raise _refusal(f"resource requirements of vertex '{vertex}'", entry, _FORM)
    given = entry["parallelism"]
    return ParallelismBounds(
        _whole(vertex, given, "lowerBound"),
        _whole(vertex, given, "upperBound"),
    )


_FORM: Final = '{"parallelism": {"lowerBound": 1, "upperBound": 4}}'


def _whole(vertex: str, given: Mapping[str, object], key: str) -> int:
    value = given.get(key, UNSET)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refusal(f"{key} of vertex '{vertex}'", value, "a whole number")
    return value


def _refusal(what: str, got: object, expected: str) -> ConfigurationError:
    return ConfigurationError(f"{what}: got {got!r}, but expected {expected}. Change the request.")


T = TypeVar("T")


PENSTOCK_DEFAULTS: Final[Mapping[str, str]] = {
    ElasticOptions.COOLDOWN.key: "10 s",
    ElasticOptions.SUBMISSION_STABILIZATION.key: "2 s",
    ElasticOptions.EXECUTING_STABILIZATION.key: "10 s",
    ElasticOptions.MAX_TRIGGER_DELAY.key: "5 s",
    ElasticOptions.HISTORY_SIZE.key: "16",
    AutoscalerMetricOptions.METRICS_WINDOW.key: "60 s",
    AutoscalerMetricOptions.STABILIZATION_INTERVAL.key: "20 s",
    # Narrower bounds mean more rescales, fewer idle slots, and growth before records wait. `python -m simulation autoscaler` shows both.
    AutoscalerTargetOptions.UTILIZATION_BOUNDARY.key: "0.15",
    AutoscalerStepOptions.SCALE_DOWN_INTERVAL.key: "10 min",
    AutoscalerTargetOptions.RESTART_TIME.key: "2 s",
    AutoscalerTargetOptions.RESTART_TIME_TRACKING.key: "true",
    AutoscalerTargetOptions.CATCH_UP_DURATION.key: "10 min",
    AutoscalerStepOptions.EFFECTIVENESS_ENABLED.key: "true",
    AutoscalerStepOptions.TOLERATED_INEFFECTIVE.key: "1",
    AutoscalerStepOptions.ALIGNMENT_MAX_ADDED.key: "0.25",
    AutoscalerStepOptions.AT_MOST_PARTITIONS.key: "true",
    # Doubles at most, so that a wrong measurement cannot ask for a hundred slots.
    AutoscalerStepOptions.SCALE_UP_MAX_FACTOR.key: "1.0",
}
"""By key, as texts: what profile `penstock` has in place of Flink's defaults."""


def elastic_value(settings: Settings, option: Option[T]) -> T:
    """Return the option's value; where nobody sets it, the default of the profile. None is possible only without any default."""
    if settings.is_set(option) or settings.get(ElasticOptions.PROFILE) is ElasticProfile.FLINK:
        return settings.get(option)
    own = PENSTOCK_DEFAULTS.get(option.key)
    return settings.get(option) if own is None else option.parse(own)


class RescaleCause(StrEnum):
    """Why a rescale begins."""

    INITIAL_SCHEDULE = "INITIAL_SCHEDULE"
    UPDATE_REQUIREMENT = "UPDATE_REQUIREMENT"
    NEW_RESOURCE_AVAILABLE = "NEW_RESOURCE_AVAILABLE"
    RECOVERABLE_FAILOVER = "RECOVERABLE_FAILOVER"


class RescaleOutcome(StrEnum):
    """How a rescale ends."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    IGNORED = "IGNORED"


class RescaleEnd(StrEnum):
    """Why a rescale ends."""

    SUCCEEDED = "SUCCEEDED"
    EXCEPTION_OCCURRED = "EXCEPTION_OCCURRED"
    RESOURCE_REQUIREMENTS_UPDATED = "RESOURCE_REQUIREMENTS_UPDATED"
    NO_RESOURCES_OR_PARALLELISMS_CHANGE = "NO_RESOURCES_OR_PARALLELISMS_CHANGE"
    JOB_FAILOVER_RESTARTING = "JOB_FAILOVER_RESTARTING"
    JOB_FINISHED = "JOB_FINISHED"
    JOB_FAILED = "JOB_FAILED"
    JOB_CANCELED = "JOB_CANCELED"

    @property
    def outcome(self) -> RescaleOutcome:
        return _OUTCOMES.get(self, RescaleOutcome.IGNORED)


_OUTCOMES = {
    RescaleEnd.SUCCEEDED: RescaleOutcome.COMPLETED,
    RescaleEnd.EXCEPTION_OCCURRED: RescaleOutcome.FAILED,
}


@dataclass(frozen=True, slots=True)
class Change:
    """Of the parallelism of a vertex, or of the slots of a sharing group.

    `desired`, `sufficient`: the upper and the lower bound. `before` None: nothing ran. `after` None: not decided.
    """

    desired: int
    sufficient: int
    before: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class StateSpan:
    """A state of the scheduler during a rescale. `left_ms` None: it is in it. `error`: what ended it, as text."""

    state: str
    entered_ms: int
    left_ms: int | None = None
    error: str | None = None

    @property
    def duration_ms(self) -> int | None:
        return None if self.left_ms is None else self.left_ms - self.entered_ms

    def shifted(self, by_ms: int) -> StateSpan:
        left_ms = None if self.left_ms is None else self.left_ms + by_ms
        return replace(self, entered_ms=self.entered_ms + by_ms, left_ms=left_ms)


@dataclass(frozen=True, slots=True)
class Rescale:
    """The rescales of a job: why each began, what it wanted and got, and how it ended. Records never change.

    Source: Flink Rescale, VertexParallelismRescale, SlotSharingGroupRescale (docs/spec/elasticity.md#rescale-history).

    One rescale. `end` None: it is under way.

    `attempt` counts the rescales for the same requirements, from 1. `group_of_vertex`: the name of each vertex's
    slot sharing group.
    """

    rescale_id: str
    requirements_id: str
    attempt: int
    cause: RescaleCause
    started_ms: int
    vertices: Mapping[VertexId, Change]
    group_slots: Mapping[str, Change]
    group_of_vertex: Mapping[VertexId, str] = field(default_factory=dict)
    states: tuple[StateSpan, ...] = ()
    end: RescaleEnd | None = None
    ended_ms: int | None = None

    @property
    def duration_ms(self) -> int | None:
        return None if self.ended_ms is None else self.ended_ms - self.started_ms

    def in_state(self, state: str | None, now_ms: int, error: str | None = None) -> Rescale:
        """The last state ends, with its error; None: no other one begins."""
        spans = list(self.states)
        if spans and spans[-1].left_ms is None:
            spans[-1] = replace(spans[-1], left_ms=now_ms, error=error)
        if state is not None:
            spans.append(StateSpan(state, now_ms))
        return replace(self, states=tuple(spans))

    def decided(
        self, parallelism: Mapping[VertexId, int], slots_of_group: Mapping[str, int]
    ) -> Rescale:
        """With what becomes of each vertex and group."""
        return replace(
            self,
            vertices={
                vertex: replace(change, after=parallelism.get(vertex))
                for vertex, change in self.vertices.items()
            },
            group_slots={
                name: replace(change, after=slots_of_group.get(name))
                for name, change in self.group_slots.items()
            },
        )

    def shifted(self, by_ms: int) -> Rescale:
        """The same, with times of another clock, whose zero is so much earlier."""
        return replace(
            self,
            started_ms=self.started_ms + by_ms,
            ended_ms=None if self.ended_ms is None else self.ended_ms + by_ms,
            states=tuple(one.shifted(by_ms) for one in self.states),
        )


@dataclass(frozen=True, slots=True)
class Rescales:
    """All that is known of a job's rescales at one moment.

    `kept`: the newest ones, oldest first; the last one may be under way. `counts`: of all that have ended. `latest`: the newest of
    each outcome, also if it is no longer among those that are kept. `is_under_way`: one is, also if none is kept.
    """

    kept: tuple[Rescale, ...] = ()
    counts: Mapping[RescaleOutcome, int] = field(default_factory=dict)
    latest: Mapping[RescaleOutcome, Rescale] = field(default_factory=dict)
    is_under_way: bool = False

    def find(self, rescale_id: str) -> Rescale | None:
        """The rescale with this id, if it is kept or under way."""
        return next((one for one in self.kept if one.rescale_id == rescale_id), None)

    def shifted(self, by_ms: int) -> Rescales:
        """The same, with times of another clock, whose zero is so much earlier."""
        return replace(
            self,
            kept=tuple(one.shifted(by_ms) for one in self.kept),
            latest={outcome: one.shifted(by_ms) for outcome, one in self.latest.items()},
        )
