"""Areas about states, formulas and options."""

from typing import Any

from penstock.engine.compiler.job_graph_builder import ChainCandidate, is_chainable
from penstock.engine.machines.execution import execution as execution_machine
from penstock.engine.machines.execution.execution import Consequence, ExecutionEvent
from penstock.engine.machines.execution.execution_graph import ExecutionGraph
from penstock.engine.machines.failover import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartBackoff,
)
from penstock.engine.machines.job_state import job_status as job_machine
from penstock.engine.machines.job_state.job_status import JobStatusEvent
from penstock.engine.model.errors import IllegalTransition
from penstock.engine.model.graph.job_graph import JobGraph, JobVertex, ResultPartitionType
from penstock.engine.model.graph.partitioning import ShipStrategy, StreamExchangeMode
from penstock.engine.model.graph.stream_graph import ChainingStrategy
from penstock.engine.model.ids import JobId, VertexId
from penstock.engine.model.key_groups import default_max_parallelism
from penstock.engine.model.options.catalogue import FORMER_KEYS, OPTIONS
from penstock.engine.model.states import ExecutionState, JobStatus

_REPORTS = {
    "INITIALIZING": ExecutionEvent.REPORT_INITIALIZING,
    "RUNNING": ExecutionEvent.REPORT_RUNNING,
    "FINISHED": ExecutionEvent.REPORT_FINISHED,
    "CANCELED": ExecutionEvent.REPORT_CANCELED,
    "FAILED": ExecutionEvent.FAIL,
}


def execution_state(given: dict[str, Any]) -> dict[str, Any]:
    state = ExecutionState(given["state"])
    word, _, reported = given["event"].partition(" ")
    if word == "reset":
        return _reset(state)
    event = _REPORTS[reported] if word == "report" else ExecutionEvent(word.upper())
    following, consequence = execution_machine.step("case", state, event)
    is_surprise = consequence in {Consequence.FAIL_TASK, Consequence.FAIL_GLOBALLY}
    found: dict[str, Any] = {
        "internal_task_failure_reported": consequence is Consequence.FAIL_TASK,
        "global_failure_reported": consequence is Consequence.FAIL_GLOBALLY,
        "state": str(following),
    }
    if is_surprise:
        found["state_before_scheduler_reacts"] = str(following)
    return found


def _reset(state: ExecutionState) -> dict[str, Any]:
    graph = JobGraph(JobId("case"), "case")
    graph.vertices[VertexId("A")] = JobVertex(VertexId("A"), "A", 1, 128)
    vertex = ExecutionGraph(graph).vertices[0]
    vertex.execution.state = state
    if state is ExecutionState.FINISHED:
        vertex.job_vertex.finished = 1
    vertex.reset()
    return {
        "new_execution_state": str(vertex.state),
        "new_attempt_number": vertex.execution.attempt_id.attempt,
    }


_JOB_EVENTS = {
    "run": JobStatusEvent.START,
    "cancel": JobStatusEvent.CANCEL,
    "failjob": JobStatusEvent.FAIL,
    "suspend": JobStatusEvent.SUSPEND,
    "to_restarting": JobStatusEvent.RESTARTABLE_FAILURE,
    "to_running": JobStatusEvent.RESTARTED,
    "tasks_canceled": JobStatusEvent.ALL_TASKS_TERMINAL,
}


def job_status(given: dict[str, Any]) -> dict[str, Any]:
    """Two tasks run after `run`; `tasks_canceled` and `tasks_finished` end them."""
    status, is_any_task_alive = JobStatus(given["start"]), False
    seen: list[str | Exception] = []
    for op in given["ops"]:
        if op == "tasks_finished" and status is JobStatus.RUNNING:
            event = JobStatusEvent.FINALIZED
        else:
            event = _JOB_EVENTS.get(op, JobStatusEvent.ALL_TASKS_TERMINAL)
        if op == "run":
            try:
                job_machine.step(status, event)
            except IllegalTransition as error:
                seen.append(error)
                continue
            is_any_task_alive = True
        if op.startswith("tasks_"):
            is_any_task_alive = False
        status = _try(status, event)
        if not is_any_task_alive:
            status = _try(status, JobStatusEvent.ALL_TASKS_TERMINAL)
        seen.append(str(status))
    return {"status_after_each": seen}


def _try(status: JobStatus, event: JobStatusEvent) -> JobStatus:
    """Compare-and-set: from another status an event changes nothing."""
    try:
        return job_machine.step(status, event)
    except IllegalTransition:
        return status


def job_status_class(given: dict[str, Any]) -> dict[str, Any]:
    status = JobStatus(given["status"])
    return {"terminal": status.is_terminal, "globally_terminal": status.is_globally_terminal}


def execution_state_class(given: dict[str, Any]) -> dict[str, Any]:
    return {"terminal": ExecutionState(given["state"]).is_terminal}


def result_partition_type(given: dict[str, Any]) -> dict[str, Any]:
    kind = ResultPartitionType(given["type"])
    return {
        "must_be_pipelined_consumed": kind.must_be_pipelined_consumed,
        "can_be_pipelined_consumed": kind.can_be_pipelined_consumed,
        "reconsumable": kind.is_reconsumable,
        "persistent": kind.is_persistent,
        "released_by_scheduler": kind.is_released_by_scheduler,
    }


def operator_chaining(given: dict[str, Any]) -> dict[str, Any]:
    name = given["partitioner"].upper()
    is_forward = name.startswith("FORWARD")
    exchange = given.get("exchange_mode", "UNDEFINED")
    candidate = ChainCandidate(
        upstream_strategy=ChainingStrategy(given["upstream_strategy"]),
        downstream_strategy=ChainingStrategy(given["downstream_strategy"]),
        upstream_parallelism=given["upstream_parallelism"],
        downstream_parallelism=given["downstream_parallelism"],
        ship_strategy=ShipStrategy.FORWARD if is_forward else ShipStrategy.REBALANCE,
        is_chaining_enabled=given["chaining_enabled"],
        in_edges_of_downstream=given["in_edges_of_downstream"],
        is_same_slot_sharing_group=given["same_slot_sharing_group"],
        exchange_mode=StreamExchangeMode(exchange),
        is_upstream_source=given["upstream_is_new_source"],
    )
    return {"chainable": is_chainable(candidate)}


def max_parallelism(given: dict[str, Any]) -> dict[str, Any]:
    return {"default_max_parallelism": default_max_parallelism(given["parallelism"])}


def config_default(given: dict[str, Any]) -> dict[str, Any]:
    """A former name stands for the present one."""
    key = given["key"]
    return {"default": OPTIONS[key if key in OPTIONS else FORMER_KEYS[key]]}


def restart_backoff(given: dict[str, Any]) -> dict[str, Any]:
    backoff = _backoff(given)
    seen = []
    for now_ms in given["failures_at_ms"]:
        is_new = backoff.notify(now_ms)
        seen.append({
            "at_ms": now_ms,
            "new_attempt": is_new,
            "can_restart": backoff.can_restart(),
            "backoff_ms": backoff.delay_ms(now_ms),
        })
    return {"after_each_failure": seen}


def _backoff(given: dict[str, Any]) -> RestartBackoff:
    match given["strategy"]:
        case "none":
            return NoRestart()
        case "fixed-delay":
            return FixedDelayRestart(given.get("attempts", 1), given.get("delay_ms", 1000))
        case "failure-rate":
            return FailureRateRestart(
                given.get("max_failures_per_interval", 1),
                given.get("interval_ms", 60_000),
                given.get("delay_ms", 1000),
            )
        case "exponential-delay":
            return ExponentialDelayRestart(
                initial_ms=given.get("initial_ms", 1000),
                max_ms=given.get("max_ms", 60_000),
                multiplier=given.get("multiplier", 1.5),
                reset_threshold_ms=given.get("reset_threshold_ms", 3_600_000),
                jitter=given.get("jitter", 0.1),
                attempts_before_reset=given.get("attempts_before_reset", 2**31 - 1),
            )
    raise ValueError(f"unknown strategy {given['strategy']!r}")
