"""`/jobs/:jobid/autoscaler`: what a job's autoscaler measures and decides. Flink's Kubernetes operator has events for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from penstock.engine.hosting.jobmanager.handle import JobHandle
from penstock.ops.autoscaler.autoscaling import AUTOSCALERS
from penstock.ops.autoscaler.rules.decisions import Decision, ScalingEvent
from penstock.ops.autoscaler.rules.evaluation import Evaluation
from penstock.ops.rest.answers import Asked, RestError
from penstock.ops.rest.requests.actions import control_of
from penstock.ops.rest.requests.handlers import Driver


def autoscaler(driver: Driver, asked: Asked) -> Any:
    """GET: the newest evaluation, and the newest decisions, newest first."""
    control = control_of(driver, asked)
    scaler = AUTOSCALERS.get(control) if isinstance(control, JobHandle) else None
    if scaler is None:
        text = "The job has no autoscaler. Set job.autoscaler.enabled to true when it is submitted."
        raise RestError(404, text)
    return {
        "interval": scaler.settings.interval_ms,
        "evaluation": evaluation_to_plain(scaler.latest()),
        "decisions": decisions_to_plain(scaler.decisions()),
    }


def evaluation_to_plain(found: Evaluation | None) -> dict[str, Any] | None:
    """Rates are records per second; null is unbounded. Times are epoch ms."""
    if found is None:
        return None
    return {
        "timestamp": found.time_ms,
        "backlog": found.is_backlog,
        "restart-seconds": found.restart_s,
        "vertices": [
            {
                "id": one.vertex_id,
                "parallelism": one.parallelism,
                "true-rate": _finite(one.true_rate),
                "observed": one.is_observed,
                "target-rate": _finite(one.target_rate),
                "catch-up-rate": _finite(one.catch_up_rate),
                "capacity": _finite(one.capacity),
                "bounds": [_finite(one.up_bound), _finite(one.down_bound)],
                "outside": one.is_outside,
            }
            for one in found.vertices.values()
        ],
    }


def decisions_to_plain(decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    """Newest first. `applied` false: a recommendation, and `held-by` says why. `outcome` null: not known yet."""
    return [
        {
            "timestamp": one.time_ms,
            "applied": one.is_applied,
            "held-by": one.held_by or None,
            "slots": {"before": one.slots_before, "after": one.slots_after},
            "changes": [
                {
                    "id": change.vertex_id,
                    "name": change.name,
                    "before": change.before,
                    "after": change.after,
                    "reason": change.reason,
                }
                for change in one.changes
            ],
            "events": [_event(event) for event in one.events],
            "outcome": None
            if one.outcome is None
            else {
                "timestamp": one.outcome.time_ms,
                "took": one.outcome.took_ms,
                "refusal": one.outcome.refusal or None,
            },
        }
        for one in reversed(decisions)
    ]


def _event(event: ScalingEvent) -> dict[str, Any]:
    kind, text, at_ms = event.kind, event.text, event.time_ms
    return {"timestamp": at_ms, "kind": kind, "text": text, "id": event.vertex_id}


def _finite(rate: float) -> float | None:
    return rate if math.isfinite(rate) else None
