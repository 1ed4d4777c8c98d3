"""A real TaskManager carries out what its machine decides: a deposed leader's word does not count, the leader's does."""

from dataclasses import replace

import pytest

from penstock.engine.model.errors import ExternalError
from penstock.engine.model.ids import AllocationId, FencingToken
from penstock.engine.model.messages import (
    AskTaskManager,
    CancelTask,
    Heartbeat,
    ListLogs,
    LogList,
    OfferSlots,
    RequestSlot,
    Shutdown,
    SlotFreed,
    TaskManagerAnswer,
)
from penstock.engine.model.states import ExecutionState
from tests.tools.hosting.fake_driver import JOB, SLOT, TOKEN
from tests.tools.programs.gated_program import gated_program

DEPOSED = FencingToken("deposed")


@pytest.fixture
def running(gate, run):
    """Two tasks in one slot, which stand still."""
    driver = run(gated_program(gate.name, parallelism=1))
    driver.until_running()
    return driver


@pytest.fixture
def manager(running):
    (one,) = running.managers.values()
    return one


def test_a_deposed_leader_cancels_nothing_and_ends_nothing(running, manager, gate):
    for attempt_id in running.attempts:
        manager.handle(CancelTask(manager.config.resource_id, attempt_id, DEPOSED))
    manager.handle(Shutdown("late", DEPOSED))
    gate.open()
    running.until_ended(ExecutionState.FINISHED)
    assert manager._end_cause is None


def test_the_leader_cancels_and_ends(running, manager):
    running.cancel()
    running.until_ended(ExecutionState.CANCELED)
    manager.handle(Shutdown("it is over", TOKEN))
    assert manager._end_cause == "it is over"


def test_a_slot_that_is_freed_is_given_back_when_its_tasks_have_ended(running, manager):
    message = running.freeing(SLOT)
    manager.handle(replace(message, fencing_token=DEPOSED))
    manager.handle(message)
    running.until(lambda: any(isinstance(one, SlotFreed) for one in running.heard))
    assert set(running.states.values()) <= {ExecutionState.RUNNING, ExecutionState.CANCELED}
    assert not manager.heartbeat().ios


def test_a_slot_that_nobody_takes_is_given_back_after_its_time(running, manager):
    me, other = manager.config.resource_id, AllocationId("other")
    manager.handle(RequestSlot(me, -1, other, JOB, TOKEN))
    running.until(lambda: any(_offers(one, other) for one in running.heard))
    (deadline, _) = manager._slot_timeouts[-1]
    manager._look_at_slot_timeouts(deadline - 0.001)
    assert manager._slot_timeouts, "one that was taken is looked at in its time too"
    manager._look_at_slot_timeouts(deadline)
    running.until(lambda: SlotFreed(me, 1, other) in running.heard)


def test_a_task_whose_chain_was_not_sent_fails_and_leaves_its_slot(running, manager):
    running.cancel()
    running.until_ended(ExecutionState.CANCELED)
    manager._modules.chains.clear()
    running.redeploy()
    assert "was not sent" in running.failure().text
    manager.handle(running.freeing(SLOT))
    running.until(lambda: any(isinstance(one, SlotFreed) for one in running.heard))


def test_a_question_of_the_leader_is_answered_and_no_other(running, manager):
    me = manager.config.resource_id
    manager.handle(AskTaskManager(me, 1, ListLogs(), DEPOSED))
    manager.handle(AskTaskManager(me, 2, ListLogs(), TOKEN))
    running.until(lambda: TaskManagerAnswer(me, 2, LogList(())) in running.heard)
    answers = [one for one in running.heard if isinstance(one, TaskManagerAnswer)]
    assert [one.question_id for one in answers] == [2]


def test_what_no_taskmanager_takes_is_refused(manager):
    with pytest.raises(ExternalError, match="does not accept Heartbeat"):
        manager.handle(Heartbeat(manager.config.resource_id, 0))


def _offers(message, allocation_id):
    is_offer = isinstance(message, OfferSlots)
    return is_offer and message.offers[0].allocation_id == allocation_id
