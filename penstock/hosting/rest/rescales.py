"""What became of the rescales of a job: `/jobs/:jobid/rescales/*`. Source: Flink's handlers of JobRescalesOverview, JobRescalesHistory,
JobRescalesSummary, JobRescaleDetails and JobRescaleConfig (docs/spec/elasticity.md#rescale-history).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from penstock.hosting.clock import monotonic_ms, wall_ms
from penstock.hosting.jobmanager.handle import JobHandle
from penstock.hosting.rest.answers import Answer, Asked, RestError
from penstock.hosting.rest.handlers import Driver
from penstock.machines.adaptive.rescale_history import (
    Change,
    Rescale,
    RescaleHistory,
    RescaleOutcome,
)
from penstock.machines.generations.adaptive_master import AdaptiveMaster
from penstock.observation.jobs.snapshots import Figures
from penstock.observation.views import jobs
from penstock.observation.views.checkpoints import summary_of

_PERCENTILES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)
_FOR_EVER_MS: Final = -1
_OFFSET_MS: Final = wall_ms() - monotonic_ms()
"""Read once: the same moment is told as the same time in every answer."""


def config(driver: Driver, asked: Asked) -> Answer:
    """GET .../config: the options that decide when a job is rescaled."""
    master = _master(driver, asked)
    elastic, job = master.settings.elastic, master.settings
    wait_ms = elastic.wait_timeout_ms
    return Answer({
        "rescaleHistoryMax": elastic.history_size,
        "schedulerExecutionMode": "REACTIVE" if elastic.is_reactive else None,
        "submissionResourceWaitTimeoutInMillis": _FOR_EVER_MS if wait_ms is None else wait_ms,
        "submissionResourceStabilizationTimeoutInMillis": elastic.submission.stabilization_ms,
        "slotIdleTimeoutInMillis": job.slot_idle_timeout_ms,
        "executingCooldownTimeoutInMillis": elastic.executing.cooldown_ms,
        "executingResourceStabilizationTimeoutInMillis": elastic.executing.stabilization_ms,
        "maximumDelayForTriggeringRescaleInMillis": elastic.executing.max_trigger_delay_ms,
        "rescaleOnFailedCheckpointCount": elastic.max_checkpoint_failures,
    })


def overview(driver: Driver, asked: Asked) -> Answer:
    """GET .../overview: how many there were, and the newest of each outcome."""
    master = _master(driver, asked)
    history = master.chronicle.history
    names = {"completed": RescaleOutcome.COMPLETED, "failed": RescaleOutcome.FAILED}
    names["ignored"] = RescaleOutcome.IGNORED
    latest = history.latest
    told = {name: _maybe(master, latest.get(outcome)) for name, outcome in names.items()}
    return Answer({"rescalesCounts": _counts(history), "latest": told})


def past(driver: Driver, asked: Asked) -> Answer:
    """GET .../history: those that are kept, the newest first."""
    master = _master(driver, asked)
    found = [_details(master, one) for one in reversed(list(master.chronicle.history))]
    return Answer({"rescales": found})


def details(driver: Driver, asked: Asked) -> Answer:
    """GET .../details/:uuid."""
    master = _master(driver, asked)
    name = asked.path["rescaleuuid"]
    found = master.chronicle.history.find(name)
    if found is None:
        raise RestError(404, f"There is no rescale {name}, or it is not kept any more.")
    return Answer(_details(master, found))


def summary(driver: Driver, asked: Asked) -> Answer:
    """GET .../summary: how long they took."""
    history = _master(driver, asked).chronicle.history
    ended = [one for one in history if one.end is not None]

    def stats(is_meant: Callable[[Rescale], bool]) -> Mapping[str, Any]:
        took = (one.duration_ms for one in ended if is_meant(one))
        return summary_of(figures_of_durations(ms for ms in took if ms is not None))

    def of(outcome: RescaleOutcome) -> Mapping[str, Any]:
        return stats(lambda one: one.end is not None and one.end.outcome is outcome)

    return Answer({
        "rescalesCounts": _counts(history),
        "rescalesDurationStatsInMillis": stats(lambda _one: True),
        "completedRescalesDurationStatsInMillis": of(RescaleOutcome.COMPLETED),
        "ignoredRescalesDurationStatsInMillis": of(RescaleOutcome.IGNORED),
        "failedRescalesDurationStatsInMillis": of(RescaleOutcome.FAILED),
    })


def figures_of_durations(durations_ms: Iterable[int]) -> Figures:
    """Return the distribution of durations."""
    found = sorted(durations_ms)
    if not found:
        return Figures()
    places = (min(len(found) - 1, int(share * len(found))) for share in _PERCENTILES)
    percentiles = tuple(float(found[place]) for place in places)
    return Figures(found[0], found[-1], sum(found) // len(found), percentiles)


def _master(driver: Driver, asked: Asked) -> AdaptiveMaster:
    """Raises RestError: no such job, or nobody has asked to rescale it."""
    job = driver.job(asked)
    control = driver.observatory.control(job.job_id)
    master = control.manager.shell.master if isinstance(control, JobHandle) else None
    if master is None or master.demand is None:
        raise RestError(404, jobs.no_rescales(job))
    return master


def _counts(history: RescaleHistory) -> Mapping[str, int]:
    counts = history.counts
    return {
        "ignored": counts[RescaleOutcome.IGNORED],
        "inProgress": int(history.current is not None),
        "completed": counts[RescaleOutcome.COMPLETED],
        "failed": counts[RescaleOutcome.FAILED],
    }


def _maybe(master: AdaptiveMaster, rescale: Rescale | None) -> Mapping[str, Any] | None:
    return None if rescale is None else _details(master, rescale)


def _details(master: AdaptiveMaster, rescale: Rescale) -> Mapping[str, Any]:
    names = {one.vertex_id: one.name for one in master.submitted.vertices.values()}
    groups = rescale.group_of_vertex
    end = rescale.end
    return {
        "rescaleUuid": rescale.rescale_id,
        "resourceRequirementsUuid": rescale.requirements_id,
        "rescaleAttemptId": rescale.attempt,
        "vertices": {
            vertex_id: {
                "jobVertexId": vertex_id,
                "jobVertexName": names.get(vertex_id, ""),
                "slotSharingGroupName": groups.get(vertex_id, ""),
                **_changed(change, _OF_VERTEX),
            }
            for vertex_id, change in rescale.vertices.items()
        },
        "slots": {
            name: {"slotSharingGroupName": name, **_changed(change, _OF_GROUP)}
            for name, change in rescale.group_slots.items()
        },
        "schedulerStates": [
            {
                "state": span.state,
                "enterTimestampInMillis": _epoch_ms(span.entered_ms),
                "leaveTimestampInMillis": _epoch_ms(span.left_ms),
                "durationInMillis": span.duration_ms,
                "stringifiedException": span.error,
            }
            for span in rescale.states
        ],
        "startTimestampInMillis": _epoch_ms(rescale.started_ms),
        "endTimestampInMillis": _epoch_ms(rescale.ended_ms),
        "terminalState": None if end is None else str(end.outcome),
        "triggerCause": str(rescale.cause),
        "terminatedReason": None if end is None else str(end),
    }


_OF_VERTEX: Final = (
    "desiredParallelism",
    "sufficientParallelism",
    "preRescaleParallelism",
    "postRescaleParallelism",
)
_OF_GROUP: Final = ("desiredSlots", "minimalRequiredSlots", "preRescaleSlots", "postRescaleSlots")


def _changed(change: Change, names: tuple[str, ...]) -> Mapping[str, int | None]:
    values = (change.desired, change.sufficient, change.before, change.after)
    return dict(zip(names, values, strict=True))


def _epoch_ms(at_ms: int | None) -> int | None:
    """Convert a moment of the machines' clock."""
    return None if at_ms is None else at_ms + _OFFSET_MS
