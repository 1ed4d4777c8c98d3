"""TaskExecutor, by docs/spec/tasks.md#submission, #slot-table,
docs/spec/slots.md#taskmanager-and-its-jobs.
"""

from dataclasses import replace
from itertools import product

import pytest

from penstock.engine.machines.taskmanager import task_executor
from penstock.engine.machines.taskmanager.task_executor import SlotEvent, TaskExecutor
from penstock.engine.model.checkpoints import CheckpointOptions
from penstock.engine.model.errors import BrokenInvariant, ConfigurationError, IllegalTransition
from penstock.engine.model.ids import NO_TOKEN, AllocationId, DataSetId, PartitionId
from penstock.engine.model.messages import (
    CheckpointFailureReason,
    DeclineCheckpoint,
    DriverCredit,
    EndTaskManager,
    JobManagerLost,
    NotifyCheckpointComplete,
    OfferSlots,
    RegistrationAccepted,
    ReleaseLocalState,
    ReleasePartitions,
    Shutdown,
    SlotFreed,
    SlotOffer,
    SlotTimedOut,
    StartSlotTimer,
    StartTask,
    StopTask,
    TriggerCheckpoint,
)
from penstock.engine.model.slot_size import UNSIZED
from penstock.engine.model.states import ExecutionState, SlotState
from simulation.bookkeeping import check_task_executor
from tests.tools.machines.task_executor_bench import (
    A1,
    A2,
    FORMER,
    JOB,
    LEADER,
    ME,
    OTHER,
    Bench,
    attempt,
    deployment,
)

T, U = attempt("t"), attempt("u")
OFFER = OfferSlots(ME, (SlotOffer(A1, 0, UNSIZED),))


@pytest.fixture
def bench():
    """Registered; two slots."""
    return Bench()


@pytest.fixture
def running(bench):
    """Task T runs in slot A1."""
    bench.request()
    bench.answer([A1])
    bench.deploy(T)
    return bench


def refusal(effects):
    (report,) = effects
    assert report.state is ExecutionState.FAILED
    assert report.failure.kind == "TaskSubmissionError"
    return report.failure.text


# ---------------------------------------------------------------------- slots


def test_a_slot_that_is_asked_for_is_offered_and_its_timeout_starts(bench):
    assert bench.request() == [OFFER, StartSlotTimer(A1)]
    assert bench.state() is SlotState.ALLOCATED


def test_a_request_that_is_said_twice_offers_again_and_starts_no_second_timeout(bench):
    bench.request()
    assert bench.request() == [OFFER]
    bench.answer([A1])
    assert bench.request() == [], "offers are of slots that nobody has taken yet"


@pytest.mark.parametrize(
    ("allocation_id", "index", "job_id"),
    [(A2, 0, JOB), (A2, 0, OTHER), (A1, 0, OTHER), (A1, 1, JOB), (A2, 2, JOB)],
)
def test_a_request_for_an_occupied_slot_changes_nothing(bench, allocation_id, index, job_id):
    """Of another allocation, another job, another place, or a slot that is not there."""
    bench.request()
    before = bench.snapshot
    assert bench.request(allocation_id, index, job_id) == []
    assert bench.snapshot == before


def test_a_request_without_an_index_gets_a_slot_beyond_the_fixed_ones(bench):
    (offer, _) = bench.request(A1, -1)
    assert offer.offers[0].slot_index == 2
    (offer, _) = bench.request(A2, -1)
    assert offer.offers[0].slot_index == 3


def test_a_slot_that_its_job_takes_does_not_time_out(bench):
    bench.request()
    assert bench.answer([A1]) == []
    assert bench.step(SlotTimedOut(A1)) == []
    assert bench.state() is SlotState.ACTIVE


def test_a_slot_that_nobody_takes_times_out(bench):
    bench.request()
    freed = [ReleaseLocalState(A1), SlotFreed(ME, 0, A1)]
    assert bench.step(SlotTimedOut(A1)) == freed
    assert bench.step(SlotTimedOut(A1)) == []
    assert bench.state() is None


def test_a_rejected_slot_is_given_back_and_can_be_given_to_another_job(bench):
    bench.request()
    assert bench.answer(rejected=[A1])[-1] == SlotFreed(ME, 0, A1)
    assert bench.request(A2, 0, OTHER)


def test_an_answer_for_a_slot_that_was_freed_meanwhile_changes_nothing(bench):
    bench.request()
    bench.free()
    assert bench.answer([A1]) == []
    assert bench.answer(rejected=[A1]) == []
    assert bench.snapshot == {}


def test_an_answer_that_is_said_twice_changes_nothing(running):
    before = running.snapshot
    assert running.answer([A1]) == []
    assert running.snapshot == before


def test_an_allocation_that_is_over_does_not_come_back(bench):
    bench.request()
    bench.free()
    assert bench.request() == []
    assert bench.request(A1, 1) == []
    assert bench.free() == [], "a slot is given back once"


def test_a_slot_with_tasks_is_given_back_when_the_last_one_has_ended(running):
    running.deploy(U)
    stops = running.free()
    assert [stop.attempt_id for stop in stops] == [T, U]
    assert "a test" in stops[0].cause
    assert running.state() is SlotState.RELEASING
    assert running.free() == []
    assert running.answer([A1]) == []
    assert running.ended(T) == []
    assert running.ended(U) == [ReleaseLocalState(A1), SlotFreed(ME, 0, A1)]
    assert running.ended(U) == []


def test_a_job_keeps_its_slot_between_two_tasks(running):
    assert running.ended(T) == []
    assert running.state() is SlotState.ACTIVE
    assert running.deploy(attempt("t", 1)) == [StartTask(deployment(attempt("t", 1)))]


def test_a_task_manager_without_slots_is_refused():
    with pytest.raises(ConfigurationError, match="numberOfTaskSlots"):
        TaskExecutor(ME, 0)


# ---------------------------------------------------------------------- tasks


def test_a_task_may_overtake_the_answer_to_the_offer(bench):
    bench.request()
    assert bench.deploy(T) == [StartTask(deployment(T))]
    assert bench.state() is SlotState.ACTIVE
    assert bench.step(SlotTimedOut(A1)) == []


def test_a_task_of_a_job_that_asked_for_no_slot_is_refused(running):
    assert "job other has asked for no slot here" in refusal(running.deploy(U, A1, OTHER))


def test_a_task_for_a_slot_of_another_job_is_refused(running):
    running.request(A2, 1, OTHER)
    assert "slot a1 belongs to job job" in refusal(running.deploy(U, A1, OTHER))
    assert running.snapshot[A1][3] == {T}


def test_a_task_for_a_slot_that_is_not_here_is_refused(running):
    assert "slot a2 not found here" in refusal(running.deploy(U, A2))


def test_a_task_for_a_slot_that_is_being_released_is_refused(running):
    running.free()
    assert "slot a1 is RELEASING" in refusal(running.deploy(U))
    assert running.ended(T)[-1] == SlotFreed(ME, 0, A1)


def test_a_deployment_that_is_said_twice_starts_one_task(running):
    assert running.deploy(T) == []
    running.ended(T)
    assert running.deploy(T) == [], "nor again after its end"
    assert running.snapshot[A1][3] == set()


def test_a_cancel_reaches_the_task_and_an_unknown_attempt_is_nobody(running):
    (stop,) = running.cancel(T)
    assert stop.attempt_id == T
    assert running.cancel(U) == []
    running.ended(T)
    assert running.cancel(T) == []


# ---------------------------------------------------------------------- what is for tasks


def test_messages_for_a_task_are_handed_on_while_it_is_there(running):
    message = NotifyCheckpointComplete(ME, (T,), 7, 0, LEADER)
    credit = DriverCredit("out", T, 2, LEADER)
    assert running.step(message) == [message]
    assert running.step(credit) == [credit]
    running.ended(T)
    assert running.step(message) == []
    assert running.step(credit) == []


def test_whoever_triggers_a_checkpoint_of_an_ended_task_is_told(running):
    trigger = TriggerCheckpoint(ME, (U,), 7, 0, CheckpointOptions(), LEADER)
    reason = CheckpointFailureReason.TASK_CLOSING
    assert running.step(trigger) == [DeclineCheckpoint(U, 7, reason)]


def test_of_tasks_that_are_told_together_those_that_are_there_hear_it(running):
    trigger = TriggerCheckpoint(ME, (U, T), 7, 0, CheckpointOptions(), LEADER)
    declined = DeclineCheckpoint(U, 7, CheckpointFailureReason.TASK_CLOSING)
    assert running.step(trigger) == [replace(trigger, attempt_ids=(T,)), declined]


def test_partitions_are_released_whatever_became_of_their_task(bench):
    message = ReleasePartitions(ME, ((PartitionId(DataSetId("d"), 0), T),), LEADER)
    assert bench.step(message) == [message]


# ---------------------------------------------------------------------- whose word counts


def late_words(token):
    """By name, of a bench where T runs in A1 and A2 is free."""
    return {
        "request": lambda bench: bench.request(A2, 1, token=token),
        "accept": lambda bench: bench.answer([A1], token=token),
        "reject": lambda bench: bench.answer(rejected=[A1], token=token),
        "free": lambda bench: bench.free(token=token),
        "deploy": lambda bench: bench.deploy(U, token=token),
        "cancel": lambda bench: bench.cancel(T, token=token),
        "trigger": lambda bench: bench.step(
            TriggerCheckpoint(ME, (T,), 7, 0, CheckpointOptions(), token)
        ),
        "trigger of an ended task": lambda bench: bench.step(
            TriggerCheckpoint(ME, (U,), 7, 0, CheckpointOptions(), token)
        ),
        "complete": lambda bench: bench.step(NotifyCheckpointComplete(ME, (T,), 7, 0, token)),
        "release": lambda bench: bench.step(ReleasePartitions(ME, (), token)),
        "credit": lambda bench: bench.step(DriverCredit("out", T, 1, token)),
        "shutdown": lambda bench: bench.step(Shutdown("late", token)),
    }


@pytest.mark.parametrize("word", late_words(FORMER))
@pytest.mark.parametrize("token", [FORMER, NO_TOKEN])
def test_a_word_of_another_leader_changes_nothing(running, word, token):
    before = running.snapshot
    assert late_words(token)[word](running) == []
    assert running.snapshot == before
    assert not running.executor.is_ending
    assert "fencing token" in str(running.executor.story.last(1)[0])


def test_nobody_is_heard_before_the_registration_is_accepted():
    bench = Bench(is_registered=False)
    assert bench.request() == []
    assert bench.request(token=NO_TOKEN) == []
    assert bench.snapshot == {}


def test_a_new_leader_finds_all_slots_given_back(running):
    """It begins with none of them: those that are free at once, the others when their tasks have ended."""
    running.request(A2, 1)
    newer = LEADER + "-2"
    effects = running.step(RegistrationAccepted(newer))
    assert [type(effect) for effect in effects] == [StopTask, ReleaseLocalState, SlotFreed]
    assert effects[0].attempt_id == T
    assert effects[2] == SlotFreed(ME, 1, A2)
    assert running.free() == [], "the former leader's word does not count any more"
    assert running.ended(T)[-1] == SlotFreed(ME, 0, A1)
    again = AllocationId("a3")
    assert running.request(again, 0, token=newer)
    assert "has asked for no slot" not in refusal(running.deploy(U, A1, token=newer))


def test_an_acceptance_that_is_said_twice_changes_nothing(running):
    before = running.snapshot
    assert running.step(RegistrationAccepted(LEADER)) == []
    assert running.snapshot == before


# ---------------------------------------------------------------------- the end


@pytest.mark.parametrize("event", [JobManagerLost("it is gone"), Shutdown("it is gone", LEADER)])
def test_without_its_jobmanager_it_ends_once(running, event):
    assert running.step(event) == [EndTaskManager("it is gone")]
    assert running.step(event) == []
    assert running.request(A2, 1) == []
    assert running.deploy(U) == []
    assert running.ended(T) == [], "its slot is still its job's"


# ---------------------------------------------------------------------- table, laws, story


def test_every_square_of_the_table_is_decided_once():
    squares = [*task_executor.TABLE, *task_executor.STALE, *task_executor.IMPOSSIBLE]
    assert len(squares) == len(set(squares))
    assert set(squares) == set(product(SlotState, SlotEvent))
    for state, event in task_executor.IMPOSSIBLE:
        with pytest.raises(IllegalTransition, match=event):
            task_executor.step("a1", state, event)


def test_only_an_active_slot_takes_a_task_and_each_once(running):
    slot = running.executor.slots.slot(A1)
    with pytest.raises(IllegalTransition, match="is or was in it"):
        slot.add(T)
    running.request(A2, 1)
    with pytest.raises(IllegalTransition, match="not active"):
        running.executor.slots.slot(A2).add(U)


def test_the_story_says_what_came_of_each_event_and_is_part_of_an_error(running):
    running.free()
    told = str(running.executor.story)
    assert "RequestSlot: a1 FREE->ALLOCATED cause=request" in told
    assert "FreeSlot: a1 ACTIVE->RELEASING cause=a test" in told
    running.executor.slots.slot(A1).state = SlotState.FREE
    with pytest.raises(BrokenInvariant, match="a1 ACTIVE->RELEASING"):
        check_task_executor(running.executor)
