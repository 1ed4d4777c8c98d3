"""Checkpoint bookkeeping: failures counted, requests queued, tasks that wait for their last checkpoint, notifications."""

import re
from collections.abc import Callable
from typing import Any

from penstock.engine.machines.checkpoints.coordinator import FailureCounter
from penstock.engine.machines.checkpoints.requests import (
    CheckpointRequest,
    Refusal,
    RequestQueue,
    Situation,
)
from penstock.engine.model.checkpoints import CheckpointType
from penstock.engine.model.messages.checkpoints import CheckpointFailureReason as Reason
from penstock.engine.runtime.checkpoint.subtask import (
    Aborted,
    CheckpointNotifications,
    Completed,
    FinalCheckpoint,
)

_WITHOUT_PREFIX = {
    "EXPIRED": Reason.CHECKPOINT_EXPIRED,
    "DECLINED": Reason.CHECKPOINT_DECLINED,
    "FINALIZE_CHECKPOINT_FAILURE": Reason.FINALIZE_FAILURE,
    "CHECKPOINT_ASYNC_EXCEPTION": Reason.ASYNC_EXCEPTION,
    "CHECKPOINT_COORDINATOR_SUSPEND": Reason.COORDINATOR_SUSPEND,
    "CHECKPOINT_COORDINATOR_SHUTDOWN": Reason.COORDINATOR_SHUTDOWN,
}


def checkpoint_failures(given: dict[str, Any]) -> dict[str, Any]:
    """Events: a reason with the id of the checkpoint, `success`, or a synchronous savepoint that fails."""
    counter = FailureCounter(given["tolerable"])
    counts, failed_after = [], None
    for place, event in enumerate(given["events"], 1):
        words = event.split()
        checkpoint_id = int(words[-1]) if words[-1].isdigit() else -place
        if words[0] == "success":
            counter.reset()
        else:
            kind = CheckpointType.STOP_SUSPEND if words[0] == "sync" else CheckpointType.CHECKPOINT
            must_fail = counter.on_failure(checkpoint_id, kind, _reason(words))
            if must_fail and failed_after is None:
                failed_after = place
        counts.append(counter.continuous)
    return {"job_failed_after": failed_after, "counter": counts}


def _reason(words: list[str]) -> Reason:
    """The word in capitals; a decline without one is a plain one."""
    name = next((w for w in words if re.fullmatch(r"[A-Z][A-Z_]+", w)), "DECLINED")
    if name in _WITHOUT_PREFIX:
        return _WITHOUT_PREFIX[name]
    return Reason(name if name in set(Reason) else name.removeprefix("CHECKPOINT_DECLINED_"))


def checkpoint_requests(given: dict[str, Any]) -> dict[str, Any]:
    queue = RequestQueue(given.get("max_concurrent", 1), given.get("min_pause_ms", 0))
    now_ms = given.get("now_ms", 0)
    situation = Situation(
        now_ms,
        given.get("pending", 0),
        bool(given.get("is_triggering", False)),
        given.get("last_completion_ms"),
    )
    if "request" in given:
        return _one_request(queue, situation, given["request"])
    texts = {}
    for text in given["queued"]:
        request = _request(text)
        texts[id(request)] = text
        queue.add(request)
    order = [texts[id(request)] for request in queue]
    chosen = queue.choose(situation)
    name = texts[id(chosen)] if isinstance(chosen, CheckpointRequest) else None
    return {"order_of_queue": order, "chosen": name}


def _one_request(queue: RequestQueue, situation: Situation, text: str) -> dict[str, Any]:
    refusal = queue.add(_request(text, situation.now_ms))
    outcome = refusal or queue.choose(situation)
    if isinstance(outcome, Refusal):
        return {
            "executed": False,
            "reason": outcome.reason.value,
            "reschedule_delay_ms": outcome.retry_in_ms,
        }
    return {"executed": outcome is not None, "reason": None, "reschedule_delay_ms": None}


def _request(text: str, now_ms: int = 0) -> CheckpointRequest:
    at = re.search(r"\bt(\d+)", text)
    is_savepoint = "savepoint" in text
    return CheckpointRequest(
        int(at[1]) if at else now_ms,
        CheckpointType.SAVEPOINT if is_savepoint else CheckpointType.CHECKPOINT,
        is_periodic="periodic" in text and "non-periodic" not in text,
        is_forced="forced" in text and "not forced" not in text,
    )


def finished_tasks(given: dict[str, Any]) -> dict[str, Any]:
    """The first notification after which the task may finish; None: it need not wait, or waits still."""
    final = FinalCheckpoint(is_needed=given["checkpoints_enabled"])
    if given["end_of_data_seen"]:
        final.on_end_of_data()
    if given.get("first_checkpoint_after") is not None:
        final.on_trigger(given["first_checkpoint_after"])
    found = None
    if not final.may_finish:
        for checkpoint_id in given.get("completed_notifications", ()):
            final.on_complete(checkpoint_id)
            if final.may_finish:
                found = checkpoint_id
                break
    return {"task_may_finish_after_notification": found}


def notify(given: dict[str, Any]) -> dict[str, Any]:
    task = CheckpointNotifications(given.get("last_reported", -1))
    heard = [one for i in given.get("complete_notifications", ()) for one in task.on_complete(i)]
    abort = given.get("abort")
    if abort:
        heard += task.on_abort(abort["id"], abort.get("latest_completed", -1))
    return {
        "delivered_complete": [n.checkpoint_id for n in heard if isinstance(n, Completed)],
        "delivered_abort": [n.checkpoint_id for n in heard if isinstance(n, Aborted)],
    }


AREAS: dict[str, Callable[..., Any]] = {
    "checkpoint_failures": checkpoint_failures,
    "checkpoint_requests": checkpoint_requests,
    "finished_tasks": finished_tasks,
    "notify": notify,
}
