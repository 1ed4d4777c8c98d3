"""The rescales of a job: `/jobs/:jobid/rescales/*`.

Source: Flink's handlers of JobRescalesOverview, JobRescalesHistory, JobRescalesSummary, JobRescaleDetails and JobRescaleConfig
(docs/spec/elasticity.md#rescale-history).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.engine.model.elastic import Change, Rescale, RescaleOutcome, Rescales
from penstock.ops.jobs.snapshots import Figures, JobSnapshot
from penstock.ops.jobs.views import jobs
from penstock.ops.jobs.views.attempts import Json
from penstock.ops.jobs.views.checkpoints import summary_of

_PERCENTILES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)
_FOR_EVER_MS: Final = -1
_OF_VERTEX: Final = (
    "desiredParallelism",
    "sufficientParallelism",
    "preRescaleParallelism",
    "postRescaleParallelism",
)
_OF_GROUP: Final = ("desiredSlots", "minimalRequiredSlots", "preRescaleSlots", "postRescaleSlots")
_UNKNOWN_PROFILE: Final = {
    "cpuCores": -1.0,
    "taskHeapMemory": -1,
    "taskOffHeapMemory": -1,
    "managedMemory": -1,
    "networkMemory": -1,
    "extendedResources": {},
}
"""A job whose slots have sizes cannot be rescaled. Source: Flink ResourceProfileInfo of ResourceProfile.UNKNOWN."""


def config(job: JobSnapshot) -> Json:
    """`/rescales/config`: the options that decide when the job is rescaled."""
    elastic = job.facts.elastic.settings
    wait_ms = elastic.wait_timeout_ms
    return {
        "rescaleHistoryMax": elastic.history_size,
        "schedulerExecutionMode": "REACTIVE" if elastic.is_reactive else None,
        "submissionResourceWaitTimeoutInMillis": _FOR_EVER_MS if wait_ms is None else wait_ms,
        "submissionResourceStabilizationTimeoutInMillis": elastic.submission.stabilization_ms,
        "slotIdleTimeoutInMillis": job.facts.elastic.slot_idle_timeout_ms,
        "executingCooldownTimeoutInMillis": elastic.executing.cooldown_ms,
        "executingResourceStabilizationTimeoutInMillis": elastic.executing.stabilization_ms,
        "maximumDelayForTriggeringRescaleInMillis": elastic.executing.max_trigger_delay_ms,
        "rescaleOnFailedCheckpointCount": elastic.max_checkpoint_failures,
    }


def overview(job: JobSnapshot, rescales: Rescales) -> Json:
    """`/rescales/overview`: how many there were, and the newest of each outcome."""
    outcomes = (RescaleOutcome.COMPLETED, RescaleOutcome.FAILED, RescaleOutcome.IGNORED)
    latest = {one.lower(): rescales.latest.get(one) for one in outcomes}
    newest = {name: None if one is None else details(job, one) for name, one in latest.items()}
    return {"rescalesCounts": _counts(rescales), "latest": newest}


def history(job: JobSnapshot, rescales: Rescales) -> list[Json]:
    """`/rescales/history`: those that are kept, the newest first."""
    return [details(job, one) for one in reversed(rescales.kept)]


def summary(_job: JobSnapshot, rescales: Rescales) -> Json:
    """`/rescales/summary`: how long those that are kept took."""

    def of(*outcomes: RescaleOutcome) -> Json:
        ended = (one for one in rescales.kept if one.end and one.end.outcome in outcomes)
        return _durations(one.duration_ms for one in ended)

    return {
        "rescalesCounts": _counts(rescales),
        "rescalesDurationStatsInMillis": of(*RescaleOutcome),
        "completedRescalesDurationStatsInMillis": of(RescaleOutcome.COMPLETED),
        "ignoredRescalesDurationStatsInMillis": of(RescaleOutcome.IGNORED),
        "failedRescalesDurationStatsInMillis": of(RescaleOutcome.FAILED),
    }


def details(job: JobSnapshot, rescale: Rescale) -> Json:
    """`/rescales/details/:uuid`."""
    names = {one.facts.vertex_id: one.facts.name for one in job.vertices}
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
                **_group(groups.get(vertex_id, "")),
                **_changed(change, _OF_VERTEX),
            }
            for vertex_id, change in rescale.vertices.items()
        },
        "slots": {
            jobs.group_id(name): {
                **_group(name),
                "requestResourceProfile": _UNKNOWN_PROFILE,
                **_changed(change, _OF_GROUP),
                "acquiredResourceProfile": _UNKNOWN_PROFILE,
            }
            for name, change in rescale.group_slots.items()
        },
        "schedulerStates": [
            {
                "state": span.state,
                "enterTimestampInMillis": span.entered_ms,
                "leaveTimestampInMillis": span.left_ms,
                "durationInMillis": span.duration_ms,
                "stringifiedException": span.error,
            }
            for span in rescale.states
        ],
        "startTimestampInMillis": rescale.started_ms,
        "endTimestampInMillis": rescale.ended_ms,
        "terminalState": None if end is None else str(end.outcome),
        "triggerCause": str(rescale.cause),
        "terminatedReason": None if end is None else str(end),
    }


def _group(name: str) -> Mapping[str, str]:
    return {"slotSharingGroupId": jobs.group_id(name), "slotSharingGroupName": name}


def _durations(durations_ms: Iterable[int | None]) -> Json:
    found = sorted(ms for ms in durations_ms if ms is not None)
    places = (min(len(found) - 1, int(share * len(found))) for share in _PERCENTILES)
    return summary_of(Figures.of(found, (float(found[place]) for place in places)))


def _counts(rescales: Rescales) -> Mapping[str, int]:
    counts = rescales.counts
    return {
        "ignored": counts.get(RescaleOutcome.IGNORED, 0),
        "inProgress": int(rescales.is_under_way),
        "completed": counts.get(RescaleOutcome.COMPLETED, 0),
        "failed": counts.get(RescaleOutcome.FAILED, 0),
    }


def _changed(change: Change, names: tuple[str, ...]) -> Mapping[str, Any]:
    values = (change.desired, change.sufficient, change.before, change.after)
    return dict(zip(names, values, strict=True))
