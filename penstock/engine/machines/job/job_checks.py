"""Invariants of a JobMaster, checked after each step in tests.

Changes nothing. Each check has a name, which its error shows.
"""

from __future__ import annotations

from collections import Counter

from penstock.engine.machines.job.job_state import JobState
from penstock.engine.model.errors import BrokenInvariant
from penstock.engine.model.states import ExecutionState, JobStatus

_HAS_SLOT = frozenset({
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
    ExecutionState.CANCELING,
})


def check_job(job: JobState) -> None:
    """Raises BrokenInvariant with the name of the check."""
    job.slots.pool.check()
    job.checkpoints.check()
    _check_seats(job)
    _check_rule_of_one(job)
    _check_counters(job)
    _check_status(job)


def _check_seats(job: JobState) -> None:
    for vertex in job.graph.vertices:
        slot = job.slots.shared_slots.slot_of(vertex)
        if vertex.state in _HAS_SLOT:
            held = slot is not None and slot.allocation_id == vertex.execution.allocation_id
            _expect("every deployed task sits in a slot that the job holds", vertex, held)
        elif vertex.state is ExecutionState.SCHEDULED:
            waiting = job.bulks.is_waiting(vertex)
            _expect("every scheduled task waits in a bulk", vertex, waiting)
        else:
            seat = job.slots.shared_slots.shared_slot_of(vertex)
            _expect("no other task has a seat", vertex, seat is None)


def _check_rule_of_one(job: JobState) -> None:
    for shared in job.slots.shared_slots:
        kinds = Counter(id(vertex.job_vertex) for vertex in shared.members.values())
        _expect("two subtasks of one vertex never share a slot", shared, max(kinds.values()) == 1)
        groups = {vertex.job_vertex.slot_sharing_group for vertex in shared.members.values()}
        _expect("a slot serves one slot sharing group", shared, len(groups) == 1)


def _check_counters(job: JobState) -> None:
    for job_vertex in job.graph.job_vertices:
        finished = sum(v.state is ExecutionState.FINISHED for v in job_vertex.vertices)
        _expect("finished subtasks are counted", job_vertex.name, finished == job_vertex.finished)
    for group in job.graph.consumed_groups:
        unfinished = sum(not partition.is_all_data_produced for partition in group.partitions)
        _expect("unfinished partitions are counted", group.edge, unfinished == group.unfinished)


def _check_status(job: JobState) -> None:
    if job.lifecycle.status.is_terminal:
        ended = job.graph.are_all_terminal
        _expect("all tasks of an ended job have ended", job.lifecycle.status, ended)
        _expect("an ended job holds no slot", job.lifecycle.status, not job.slots.pool.slots)
    if job.lifecycle.status is JobStatus.FINISHED:
        done = job.graph.is_finished
        _expect("all tasks of a finished job have finished", job.lifecycle.status, done)
    waiting = job.restarts.is_any_waiting
    _expect(
        "a job is restarting while tasks wait for their restart",
        job.lifecycle.status,
        job.lifecycle.awaits_next or waiting == job.lifecycle.is_restarting,
    )


def _expect(name: str, what: object, holds: bool) -> None:
    if not holds:
        raise BrokenInvariant(f"'{name}' does not hold for {what}.")
