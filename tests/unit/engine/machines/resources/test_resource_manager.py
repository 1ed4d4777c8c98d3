"""TaskManagers and their slots, by docs/spec/slots.md#resourcemanager."""

import pytest

from penstock.engine.machines.resources.resource_manager import (
    ResourceManager,
    ResourceSettings,
    max_taskmanagers_of,
    resource_settings_of,
)
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.ids import JobId, TaskManagerLocation
from penstock.engine.model.messages import (
    DeclareRequirements,
    RequestSlot,
    ResourcesMissing,
    ResourceTick,
    SlotFreed,
    StartTaskManager,
    StopTaskManager,
    TaskManagerLostEvent,
    TaskManagerRegistered,
    TaskManagersAllowed,
    TaskManagersLeaving,
    TaskManagerStartFailed,
)
from simulation.bookkeeping import allocated_to, check_resources

JOB = JobId("job")


class Bench:
    def __init__(self, slots: int = 2, most: int | None = None, **settings) -> None:
        self.rm = ResourceManager(slots, most, ResourceSettings(**settings), 0)
        self.slots = slots

    def step(self, event) -> list:
        effects = self.rm.step(event)
        check_resources(self.rm)
        return effects

    def need(self, slots: int, now_ms: int = 0) -> list:
        return self.step(DeclareRequirements(JOB, slots, now_ms))

    def register(self, name: str, now_ms: int = 0) -> list:
        location = TaskManagerLocation(name, f"host-{name}", 1)
        return self.step(TaskManagerRegistered(location, self.slots, now_ms))


def started(effects: list) -> list[str]:
    return [e.resource_id for e in effects if isinstance(e, StartTaskManager)]


def requested(effects: list) -> list[tuple]:
    return [(e.resource_id, e.slot_index) for e in effects if isinstance(e, RequestSlot)]


def test_as_many_task_managers_as_the_slots_need() -> None:
    bench = Bench()
    assert started(bench.need(3)) == ["tm-1", "tm-2"]
    assert requested(bench.register("tm-1")) == [("tm-1", 0), ("tm-1", 1)]
    assert requested(bench.register("tm-2")) == [("tm-2", 0)]
    assert started(bench.need(5)) == ["tm-3"]
    assert allocated_to(bench.rm, JOB) == 4


def test_a_lost_task_manager_is_replaced_by_a_new_incarnation_as_often_as_needed() -> None:
    bench = Bench(slots=1)
    bench.need(1)
    for number in range(1, 21):
        bench.register(f"tm-{number}")
        effects = bench.step(TaskManagerLostEvent(f"tm-{number}", "killed", number))
        assert started(effects) == [f"tm-{number + 1}"]


def test_a_failed_start_is_tried_again_until_there_are_too_many() -> None:
    bench = Bench(slots=1, max_start_failures_per_minute=2, start_retry_ms=3000)
    (name,) = started(bench.need(1))
    for now_ms in (1, 2):
        (name,) = started(bench.step(TaskManagerStartFailed(name, "no core", now_ms)))
    assert started(bench.step(TaskManagerStartFailed(name, "no core", 3))) == []
    assert bench.rm.start_failures.count == 3
    assert started(bench.step(ResourceTick(3002))) == []
    assert len(started(bench.step(ResourceTick(3003)))) == 1


def test_a_start_that_takes_too_long_is_given_up() -> None:
    bench = Bench(slots=1, start_timeout_ms=1000)
    bench.need(1)
    effects = bench.step(ResourceTick(1000))
    assert isinstance(effects[0], StopTaskManager)
    assert started(effects) == ["tm-2"]


def test_spread_slots_go_to_the_least_used_task_manager() -> None:
    bench = Bench(slots=2, load_balance="SLOTS")
    bench.register("a")
    bench.register("b")
    assert requested(bench.need(3)) == [("a", 0), ("b", 0), ("a", 1)]
    full = Bench(slots=2)
    full.register("a")
    full.register("b")
    assert requested(full.need(3)) == [("a", 0), ("a", 1), ("b", 0)]


def test_slots_are_spread_over_task_managers_that_are_still_to_come() -> None:
    bench = Bench(slots=3, load_balance="SLOTS")
    assert started(bench.need(4)) == ["tm-1", "tm-2"]
    assert requested(bench.register("tm-1")) == []
    assert requested(bench.register("tm-2")) == [("tm-1", 0), ("tm-2", 0), ("tm-1", 1), ("tm-2", 1)]


def test_spreading_does_not_wait_for_a_task_manager_that_failed_to_start() -> None:
    bench = Bench(slots=3, most=2, load_balance="SLOTS", max_start_failures_per_minute=0)
    bench.need(4)
    bench.register("tm-1")
    effects = bench.step(TaskManagerStartFailed("tm-2", "no core", 1))
    assert requested(effects) == [("tm-1", 0), ("tm-1", 1), ("tm-1", 2)]


def test_spreading_waits_no_longer_than_a_start_takes() -> None:
    """There may be no room for the second one, and the job may be able to begin with less."""
    bench = Bench(slots=3, load_balance="SLOTS", start_timeout_ms=300_000)
    bench.need(4)
    bench.register("tm-1", 1_000)
    assert requested(bench.step(ResourceTick(9_999))) == []
    effects = bench.step(ResourceTick(10_000))
    assert requested(effects) == [("tm-1", 0), ("tm-1", 1), ("tm-1", 2)]
    assert requested(bench.register("tm-2", 20_000)) == [("tm-2", 0)]


def test_spreading_does_not_wait_for_who_comes_in_place_of_a_failed_one() -> None:
    bench = Bench(slots=3, load_balance="SLOTS", start_timeout_ms=8_000)
    bench.need(4)
    bench.register("tm-1", 1_000)
    effects = bench.step(ResourceTick(8_000))
    assert started(effects) == ["tm-3"]
    assert requested(effects) == [("tm-1", 0), ("tm-1", 1), ("tm-1", 2)]


def test_a_freed_slot_serves_the_next_need_under_a_new_allocation() -> None:
    bench = Bench(slots=1)
    bench.need(1)
    (first,) = bench.register("tm-1")
    bench.need(0, 10)
    assert bench.step(SlotFreed("tm-1", 0, first.allocation_id)) == []
    assert not bench.rm.needs
    (second,) = bench.need(1, 20)
    assert second.allocation_id != first.allocation_id
    stale = SlotFreed("tm-1", 0, first.allocation_id)
    assert bench.step(stale) == []
    assert allocated_to(bench.rm, JOB) == 1


def test_idle_task_managers_are_stopped_in_time() -> None:
    bench = Bench(slots=1, idle_timeout_ms=1000)
    bench.register("a", 0)
    assert bench.step(ResourceTick(999)) == []
    (stop,) = bench.step(ResourceTick(1000))
    assert isinstance(stop, StopTaskManager)
    assert bench.rm.slots_registered == 0


def test_redundant_task_managers_come_on_top_and_stay() -> None:
    bench = Bench(slots=2, redundant_taskmanagers=1, idle_timeout_ms=10)
    assert started(bench.need(2)) == ["tm-1", "tm-2"]
    bench.register("tm-1")
    bench.register("tm-2")
    assert not [e for e in bench.step(ResourceTick(100)) if isinstance(e, StopTaskManager)]


def test_what_can_never_come_is_said_at_once_and_repeated() -> None:
    bench = Bench(slots=1, most=1)
    effects = bench.need(2)
    assert started(effects) == ["tm-1"]
    (missing,) = [e for e in effects if isinstance(e, ResourcesMissing)]
    assert (missing.wanted, missing.available) == (2, 0)
    assert "penstock.taskmanager.max" in missing.reason
    assert bench.step(ResourceTick(29_999)) == []
    assert isinstance(bench.step(ResourceTick(30_000))[0], ResourcesMissing)


def test_what_is_late_is_said_after_ten_seconds_and_then_every_thirty() -> None:
    bench = Bench(slots=1)
    bench.need(1)
    said = [now for now in range(0, 70_000, 500) if bench.step(ResourceTick(now))]
    assert said == [10_000, 40_000]


def test_task_managers_beyond_the_maximum_are_sent_away_and_repeats_do_nothing() -> None:
    bench = Bench(slots=1, most=1)
    assert bench.register("a") == []
    assert bench.register("a") == []
    (stop,) = bench.register("b")
    assert stop.resource_id == "b"


def test_it_is_full_when_all_have_come_that_may_and_more_is_wanted() -> None:
    bench = Bench(slots=1, most=2)
    seen = [bench.rm.is_full]
    for act in (
        lambda: bench.need(3),
        lambda: bench.register("tm-1"),
        lambda: bench.register("tm-2"),
        lambda: bench.step(TaskManagersAllowed(3, 0)),
        lambda: bench.register("tm-3"),
    ):
        act()
        seen.append(bench.rm.is_full)
    assert seen == [False, False, False, True, False, False]
    assert not Bench(slots=1).rm.is_full


def test_settings_are_read_and_nonsense_is_refused() -> None:
    assert resource_settings_of(Settings()).idle_timeout_ms == 30_000
    spread = Settings({"cluster.evenly-spread-out-slots": "true"})
    assert resource_settings_of(spread).load_balance == "SLOTS"
    assert max_taskmanagers_of(Settings()) is None
    assert max_taskmanagers_of(Settings({"penstock.taskmanager.max": 3})) == 3
    slots = {"slotmanager.number-of-slots.max": 7, "taskmanager.numberOfTaskSlots": 2}
    assert max_taskmanagers_of(Settings(slots)) == 3
    for slots_each, most in ((0, None), (1, 0)):
        with pytest.raises(ConfigurationError, match="at least 1"):
            ResourceManager(slots_each, most)


def leave(bench: Bench, *names: str) -> list:
    return bench.step(TaskManagersLeaving(tuple(names), "decommissioned", 0))


def stopped(effects: list) -> list[str]:
    return [e.resource_id for e in effects if isinstance(e, StopTaskManager)]


def test_a_leaving_task_manager_gives_no_slot_and_another_is_asked_for() -> None:
    bench = Bench(most=2)
    bench.need(2)
    bench.register("tm-1")
    bench.need(1)
    bench.step(SlotFreed("tm-1", 1, "alloc-2"))
    assert stopped(leave(bench, "tm-1")) == []
    effects = bench.need(3)
    assert requested(effects) == []
    assert started(effects) == ["tm-2"]


def test_a_leaving_task_manager_ends_when_its_last_slot_is_free() -> None:
    bench = Bench()
    bench.need(2)
    bench.register("tm-1")
    leave(bench, "tm-1")
    assert stopped(bench.step(SlotFreed("tm-1", 0, "alloc-1"))) == []
    assert stopped(bench.step(SlotFreed("tm-1", 1, "alloc-2"))) == ["tm-1"]


def test_an_idle_task_manager_that_leaves_ends_at_once() -> None:
    bench = Bench()
    bench.need(2)
    bench.register("tm-1")
    bench.need(0)
    bench.step(SlotFreed("tm-1", 0, "alloc-1"))
    bench.step(SlotFreed("tm-1", 1, "alloc-2"))
    assert stopped(leave(bench, "tm-1")) == ["tm-1"]


def test_one_that_leaves_does_not_count_among_those_that_are_allowed() -> None:
    bench = Bench(slots=1, most=1)
    bench.need(1)
    bench.register("tm-1")
    leave(bench, "tm-1")
    assert started(bench.need(2)) == ["tm-2"]
    assert requested(bench.register("tm-2")) == [("tm-2", 0)]


def test_a_leaving_task_manager_that_is_lost_is_forgotten() -> None:
    bench = Bench(slots=1)
    bench.need(1)
    bench.register("tm-1")
    leave(bench, "tm-1")
    assert started(bench.step(TaskManagerLostEvent("tm-1", "gone", 0))) == ["tm-2"]
    assert leave(bench, "tm-1") == []


def test_a_host_that_grows_may_have_more_task_managers() -> None:
    bench = Bench(slots=1, most=1)
    assert started(bench.need(3)) == ["tm-1"]
    assert started(bench.step(TaskManagersAllowed(2, 0))) == ["tm-2"]
    assert started(bench.step(TaskManagersAllowed(1, 0))) == []
