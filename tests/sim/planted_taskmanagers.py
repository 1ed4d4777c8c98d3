"""Bugs of the TaskManager's own machine: see `planted.py`."""

from collections.abc import Callable
from contextlib import ExitStack
from unittest.mock import patch

from penstock.engine.machines.taskmanager import task_executor
from penstock.engine.machines.taskmanager.task_executor import (
    SlotConsequence,
    SlotEvent,
    TaskExecutor,
    TaskSlot,
    TaskSlots,
)
from penstock.engine.model.ids import AttemptId
from penstock.engine.model.messages import FreeSlot, StartTask, StopTask
from penstock.engine.model.states import SlotState

PLANTS: dict[str, Callable[[ExitStack], None]] = {}


def plant(bug: Callable[[ExitStack], None]) -> Callable[[ExitStack], None]:
    PLANTS[bug.__name__] = bug
    return bug


def swap(stack: ExitStack, owner: object, name: str, broken: object) -> None:
    stack.enter_context(patch.object(owner, name, broken))


@plant
def a_slot_forgets_who_sits_in_it(stack):
    swap(stack, TaskSlot, "add", lambda self, attempt_id: None)


@plant
def a_repeated_request_brings_a_slot_back(stack):
    """As it was before the simulator found it."""
    real = TaskSlots.requested

    def requested(self, index, job_id, allocation_id):
        self._past.clear()
        return real(self, index, job_id, allocation_id)

    swap(stack, TaskSlots, "requested", requested)


@plant
def a_repeated_message_starts_a_task_again(stack):
    """As it was before the simulator found it."""
    real = TaskSlot.leave

    def leave(self, attempt_id: AttemptId):
        is_empty = real(self, attempt_id)
        self.ended.clear()
        return is_empty

    swap(stack, TaskSlot, "leave", leave)


@plant
def a_deposed_leader_s_word_counts(stack):
    swap(stack, TaskExecutor, "_counts", lambda self, message: True)


@plant
def a_slot_is_given_back_while_a_task_runs_in_it(stack):
    freed = (SlotState.ACTIVE, SlotEvent.FREE)
    stack.enter_context(
        patch.dict(task_executor.TABLE, {freed: (SlotState.FREE, SlotConsequence.GIVE_BACK)})
    )


@plant
def a_request_that_is_said_twice_takes_two_places(stack):
    real = TaskSlots.requested

    def requested(self, index, job_id, allocation_id):
        slot = real(self, index, job_id, allocation_id)
        if slot is not None and slot.state is not SlotState.FREE:
            self._by_index[self._count + len(self._by_index)] = slot
        return slot

    swap(stack, TaskSlots, "requested", requested)


@plant
def an_answer_that_is_said_twice_starts_the_slot_anew(stack):
    accepted = (SlotState.ACTIVE, SlotEvent.ACCEPT)
    swap(stack, task_executor, "STALE", task_executor.STALE - {accepted})
    anew = {accepted: (SlotState.ALLOCATED, SlotConsequence.NONE)}
    stack.enter_context(patch.dict(task_executor.TABLE, anew))


@plant
def a_slot_that_its_job_has_taken_times_out(stack):
    timed_out = (SlotState.ACTIVE, SlotEvent.TIME_OUT)
    swap(stack, task_executor, "STALE", task_executor.STALE - {timed_out})
    stopped = {timed_out: (SlotState.RELEASING, SlotConsequence.STOP_TASKS)}
    stack.enter_context(patch.dict(task_executor.TABLE, stopped))


@plant
def a_cancel_is_forgotten(stack):
    swap(stack, TaskExecutor, "_on_cancel", lambda self, attempt_id: None)


@plant
def the_tasks_of_a_released_slot_go_on(stack):
    real = TaskExecutor.step

    def step(self, event):
        is_freed = isinstance(event, FreeSlot)
        return [e for e in real(self, event) if not (is_freed and isinstance(e, StopTask))]

    swap(stack, TaskExecutor, "step", step)


@plant
def a_task_that_is_refused_starts_all_the_same(stack):
    def refuse(self, deployment, why):
        self._effects.append(StartTask(deployment))

    swap(stack, TaskExecutor, "_refuse", refuse)
