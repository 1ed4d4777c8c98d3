"""Bugs planted into the checkpoint coordinator and the restore; `planted.py` hunts them with the others."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import patch

from penstock.engine.machines.checkpoints.coordinator import CheckpointCoordinator
from penstock.engine.machines.checkpoints.coordinator_state import EndedCheckpoints
from penstock.engine.machines.checkpoints.job_checkpoints import JobCheckpoints
from penstock.engine.machines.checkpoints.pending import PendingCheckpoint

PLANTS: dict[str, Callable[[ExitStack], None]] = {}


def plant(bug: Callable[[ExitStack], None]) -> Callable[[ExitStack], None]:
    PLANTS[bug.__name__] = bug
    return bug


def swap(stack: ExitStack, owner: object, name: str, broken: object) -> None:
    stack.enter_context(patch.object(owner, name, broken))


@plant
def an_acknowledgement_of_an_older_checkpoint_counts(stack):
    """What comes late for one that was aborted is taken for the one that is under way."""
    real = CheckpointCoordinator.on_acknowledged

    def on_acknowledged(self, message):
        if message.checkpoint_id not in self.pending and self.pending:
            message = replace(message, checkpoint_id=max(self.pending))
        real(self, message)

    swap(stack, CheckpointCoordinator, "on_acknowledged", on_acknowledged)


@plant
def a_snapshot_is_left_out_of_a_completed_checkpoint(stack):
    real = PendingCheckpoint.completed

    def completed(self, job_id, graph):
        found = real(self, job_id, graph)
        last = found.operators[-1]
        short = replace(last, subtasks=(*last.subtasks[:-1], None))
        return replace(found, operators=(*found.operators[:-1], short))

    swap(stack, PendingCheckpoint, "completed", completed)


@plant
def tasks_hear_of_a_checkpoint_before_it_is_written(stack):
    real = CheckpointCoordinator.store_next

    def store_next(self):
        was_storing = self.is_storing
        real(self)
        if self.is_storing and not was_storing:
            storing = next(p for p in self.pending.values() if p.checkpoint is not None)
            self._gateway.notify_complete(storing)

    swap(stack, CheckpointCoordinator, "store_next", store_next)


@plant
def restarts_begin_with_the_first_checkpoint(stack):
    real = JobCheckpoints.latest_plan

    def latest_plan(self):
        return self._plan or real(self)

    swap(stack, JobCheckpoints, "latest_plan", latest_plan)


@plant
def a_restart_does_not_wait_for_a_checkpoint_that_is_being_written(stack):
    swap(stack, JobCheckpoints, "is_storing", False)


@plant
def ids_start_again_after_a_restart(stack):
    real = CheckpointCoordinator.start

    def start(self, now_ms):
        if not self.is_active:
            self.coordinator_state.next_id = 1 + max(self.pending, default=0)
        real(self, now_ms)

    swap(stack, CheckpointCoordinator, "start", start)


@plant
def a_repeated_acknowledgement_discards_its_snapshot(stack):
    """As if every checkpoint that is not pending had been aborted."""
    swap(stack, EndedCheckpoints, "was_aborted", lambda self, checkpoint_id: True)


@plant
def checkpoints_outlive_a_failure(stack):
    """What was under way is not aborted when the job stops running."""
    swap(stack, CheckpointCoordinator, "_abort_all", lambda self, reason: None)


@plant
def nobody_hurries_at_the_end(stack):
    """Tasks at their end wait for the timer, though all of them do."""
    swap(stack, CheckpointCoordinator, "on_awaited", lambda self, attempt_id, now_ms: None)


@plant
def a_restart_forgets_who_waits_for_the_last_checkpoint(stack):
    """Also of the regions that it does not touch."""
    real = CheckpointCoordinator.stop

    def stop(self, *reason):
        real(self, *reason)
        self.ends.waiting.clear()

    swap(stack, CheckpointCoordinator, "stop", stop)


@plant
def a_vertex_counts_as_ended_when_one_of_its_subtasks_has(stack):
    real = PendingCheckpoint.operators_of

    def operators_of(self, job_vertex):
        has_ended = bool(self._finished_of(job_vertex))
        return [replace(one, is_fully_finished=has_ended) for one in real(self, job_vertex)]

    swap(stack, PendingCheckpoint, "operators_of", operators_of)
