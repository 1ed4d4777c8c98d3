"""A TaskManager's slots, by flink-runtime spec 1.7; and silence of peers, by spec 6.4."""

import pytest

from penstock.machines.job.story import Story
from penstock.machines.leases.liveness import Liveness
from penstock.machines.taskmanager.task_slots import TaskSlots
from penstock.model.errors import ConfigurationError, ExternalError
from penstock.model.ids import (
    AllocationId,
    AttemptId,
    ExecutionVertexId,
    JobId,
    ResourceId,
    VertexId,
)
from penstock.model.messages import SlotFreed, SlotOffer
from penstock.model.states import SlotState

ME, JOB, A1 = ResourceId("tm"), JobId("j"), AllocationId("a1")
TASK = AttemptId(ExecutionVertexId(VertexId("v"), 0), 0)


def test_an_allocation_is_idempotent_and_an_index_is_given_once() -> None:
    slots = TaskSlots(1)
    assert slots.allocate(0, JOB, A1)
    assert slots.allocate(0, JOB, A1)
    assert not slots.allocate(0, JobId("other"), A1)
    assert not slots.allocate(0, JOB, AllocationId("a2"))
    assert not slots.allocate(5, JOB, AllocationId("a3"))
    assert slots.allocate(-1, JOB, AllocationId("a4"))
    assert slots.slot(AllocationId("a4")).index == 1


def test_a_slot_with_tasks_is_freed_when_the_last_one_ends() -> None:
    slots = TaskSlots(1)
    slots.allocate(0, JOB, A1)
    slots.mark_active(A1)
    slots.add_task(A1, TASK)
    assert slots.free(ME, A1) == []
    assert slots.slot(A1).state is SlotState.RELEASING
    assert not slots.mark_active(A1)
    assert slots.task_ended(A1, TASK) == [SlotFreed(ME, 0, A1)]
    assert slots.free(ME, A1) == []
    assert len(slots) == 0


def test_tasks_need_an_active_slot_and_come_once() -> None:
    slots = TaskSlots(1)
    with pytest.raises(ExternalError, match="not found"):
        slots.add_task(A1, TASK)
    slots.allocate(0, JOB, A1)
    with pytest.raises(ExternalError, match="ALLOCATED"):
        slots.add_task(A1, TASK)
    slots.mark_active(A1)
    slots.add_task(A1, TASK)
    with pytest.raises(ExternalError, match="already"):
        slots.add_task(A1, TASK)
    assert slots.task_ended(A1, TASK) == []
    assert slots.task_ended(AllocationId("gone"), TASK) == []


def test_only_the_newest_timeout_counts() -> None:
    slots = TaskSlots(1)
    slots.allocate(0, JOB, A1)
    first = slots.ticket_of(A1)
    assert slots.offers_to(JOB) == [SlotOffer(A1, 0)]
    assert slots.is_timed_out(A1, first)
    slots.mark_active(A1)
    assert slots.offers_to(JOB) == []
    assert not slots.is_timed_out(A1, first)
    slots.mark_inactive(A1)
    assert not slots.is_timed_out(A1, first)
    assert slots.is_timed_out(A1, slots.ticket_of(A1))


def test_a_task_manager_without_slots_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="numberOfTaskSlots"):
        TaskSlots(0)


def test_silence_is_noticed_once_and_late_signs_do_not_count() -> None:
    peers = Liveness[str](timeout_ms=50, interval_ms=10)
    peers.watch("a", 0)
    peers.watch("b", 0)
    peers.heard("a", 30)
    peers.heard("a", 10)
    peers.heard("stranger", 10)
    assert [(s.peer, s.silent_ms) for s in peers.tick(50)] == [("b", 50)]
    assert "0.05 s" in str(peers.tick(80)[0])
    assert peers.tick(1000) == []
    peers.watch("c", 0)
    peers.forget("c")
    assert "c" not in peers
    with pytest.raises(ConfigurationError, match=r"heartbeat\.timeout"):
        Liveness(10, 10)


def test_a_story_keeps_the_newest_lines() -> None:
    story = Story[int](3)
    for line in range(5):
        story.add(line)
    assert list(story) == [2, 3, 4]
    assert story.last(2) == [3, 4]
    assert (len(story), story.dropped) == (3, 2)
