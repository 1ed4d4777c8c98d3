"""The job's slots, by docs/spec/slots.md#the-pools-slots, #the-pools-requests."""

import pytest

from penstock.engine.machines.slots.resource_profile import UNKNOWN, profile_of
from penstock.engine.machines.slots.slot_matching import SlotProfile, SlotRequest
from penstock.engine.machines.slots.slot_pool import SlotPool
from penstock.engine.model.errors import BrokenInvariant
from penstock.engine.model.ids import AllocationId, ResourceId, SlotRequestId, TaskManagerLocation
from penstock.engine.model.messages import SlotOffer
from simulation.bookkeeping import check_pool

TM = TaskManagerLocation(ResourceId("tm"), "host", 1)


def request(name: str, profile=UNKNOWN) -> SlotRequest:
    return SlotRequest(SlotRequestId(name), profile)


def offers(*names: str) -> list[SlotOffer]:
    return [SlotOffer(AllocationId(name), i) for i, name in enumerate(names)]


@pytest.fixture
def pool() -> SlotPool:
    pool = SlotPool(idle_timeout_ms=50)
    pool.register_task_manager(TM.resource_id)
    return pool


def test_only_outstanding_requirements_take_offers_and_held_ones_are_taken_again(
    pool: SlotPool,
) -> None:
    pool.request_new(request("r1"))
    answer = pool.offer(TM, offers("a1", "a2"), 0)
    assert (answer.accepted, answer.rejected) == (("a1",), ("a2",))
    assert pool.offer(TM, offers("a1"), 1).accepted == ("a1",)
    assert [(r.request_id, s.allocation_id) for r, s in pool.serve_pending()] == [("r1", "a1")]
    check_pool(pool)


def test_offers_of_strangers_are_refused(pool: SlotPool) -> None:
    pool.request_new(request("r1"))
    stranger = TaskManagerLocation(ResourceId("other"), "host", 1)
    assert pool.offer(stranger, offers("a1"), 0).accepted == ()


def test_while_the_job_restarts_every_slot_is_kept_and_used_later(pool: SlotPool) -> None:
    assert pool.offer(TM, offers("a1"), 0, is_any_welcome=True).accepted == ("a1",)
    assert pool.allocate(request("r1"), SlotProfile()) is not None
    assert pool.total_required == 1
    check_pool(pool)


def test_releasing_a_served_request_frees_its_slot_for_the_next(pool: SlotPool) -> None:
    pool.request_new(request("r1"))
    pool.offer(TM, offers("a1"), 0)
    pool.serve_pending()
    pool.request_new(request("r2"))
    assert pool.utilization(TM.resource_id) == pytest.approx(1)
    assert pool.release(SlotRequestId("r1"), 5) is False
    assert pool.utilization(TM.resource_id) == pytest.approx(0)
    assert [r.request_id for r, _ in pool.serve_pending()] == ["r2"]
    assert pool.loads() == {TM.resource_id: 1}
    check_pool(pool)


def test_releasing_a_waiting_request_lowers_the_requirement(pool: SlotPool) -> None:
    pool.request_new(request("r1"))
    assert pool.release(SlotRequestId("r1"), 0) is True
    assert pool.release(SlotRequestId("unknown"), 0) is False
    assert pool.total_required == 0


def test_idle_slots_beyond_the_requirements_are_given_back_in_time(pool: SlotPool) -> None:
    for name in ("r1", "r2"):
        pool.request_new(request(name))
    pool.offer(TM, offers("a1", "a2"), 0)
    pool.serve_pending()
    assert pool.next_idle_ms() is None
    pool.release(SlotRequestId("r1"), 10)
    assert pool.next_idle_ms() == 60
    assert pool.release_idle(59) == []
    assert [slot.allocation_id for slot in pool.release_idle(60)] == ["a1"]
    check_pool(pool)


def test_required_slots_are_never_given_back_even_if_idle(pool: SlotPool) -> None:
    pool.required[UNKNOWN] += 1
    pool.offer(TM, offers("a1"), 0)
    assert pool.release_idle(1000) == []


def test_losing_a_task_manager_loses_its_slots_and_the_used_requirements(pool: SlotPool) -> None:
    for name in ("r1", "r2"):
        pool.request_new(request(name))
    pool.offer(TM, offers("a1"), 0)
    pool.serve_pending()
    assert [slot.allocation_id for slot in pool.release_task_manager(TM.resource_id)] == ["a1"]
    assert pool.total_required == 1
    assert pool.release_task_manager(TM.resource_id) == []
    check_pool(pool)


def test_a_slot_that_came_for_one_profile_may_serve_another(pool: SlotPool) -> None:
    small = profile_of({"cpu": 1})
    pool.request_new(request("r1"))
    pool.offer(TM, offers("a1"), 0)
    pool.request_new(request("r0", small))
    pool.release(SlotRequestId("r1"), 0)
    assert [r.request_id for r, _ in pool.serve_pending()] == ["r0"]
    check_pool(pool)


def test_clearing_gives_all_slots_back(pool: SlotPool) -> None:
    pool.request_new(request("r1"))
    pool.offer(TM, offers("a1"), 0)
    assert [slot.allocation_id for slot in pool.clear()] == ["a1"]
    assert pool.total_required == 0
    check_pool(pool)


def test_broken_books_are_found(pool: SlotPool) -> None:
    pool.request_new(request("r1"))
    pool.required[UNKNOWN] = 7
    with pytest.raises(BrokenInvariant, match="required slots"):
        check_pool(pool)


def test_as_many_slots_as_are_wanted_are_taken_though_no_request_waits(pool: SlotPool) -> None:
    pool.floor = 2
    assert pool.total_required == 2
    answer = pool.offer(TM, offers("a1", "a2", "a3"), 0)
    assert (answer.accepted, answer.rejected) == (("a1", "a2"), ("a3",))
    check_pool(pool)
    pool.request_new(request("r1"))
    assert [str(slot.allocation_id) for _, slot in pool.serve_pending()] == ["a1"]
    check_pool(pool)
    assert pool.total_required == 2


def test_surplus_slots_are_those_of_the_smallest_taskmanagers(pool: SlotPool) -> None:
    small = TaskManagerLocation(ResourceId("small"), "host", 1)
    pool.register_task_manager(small.resource_id)
    pool.floor = 4
    pool.offer(small, offers("b1"), 0)
    pool.offer(TM, offers("a1", "a2", "a3"), 0)
    assert [slot.allocation_id for slot in pool.release_surplus(3)] == ["b1"]
    assert pool.release_surplus(3) == []
    assert len(pool.release_surplus(1)) == 2
    check_pool(pool)
