"""Profiles, selection, matching, preferred locations, bulk checks, by
docs/spec/slots.md#preferred-locations, docs/spec/scheduling.md#bulks-that-wait-for-slots,
docs/spec/slots.md#choosing-a-slot, #back-to-the-slot-from-before, #matching-waiting-requests,
#sizes.
"""

from dataclasses import dataclass

import pytest

from penstock.engine.machines.execution.execution_graph import ExecutionGraph
from penstock.engine.machines.scheduling.bulks import BulkCheck, BulkTimeout, is_fulfillable
from penstock.engine.machines.slots.resource_profile import (
    ANY,
    UNKNOWN,
    ZERO,
    ResourceProfile,
    profile_of,
)
from penstock.engine.machines.slots.shared_slots import (
    preferred_by_inputs,
    preferred_locations,
)
from penstock.engine.machines.slots.slot_matching import (
    Locality,
    Matching,
    SlotProfile,
    SlotRequest,
    SlotSelection,
    match_requests,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.ids import AllocationId, ResourceId, SlotRequestId, TaskManagerLocation
from penstock.engine.model.states import ExecutionState
from tests.tools.machines.job_graphs import A2A, job_graph
from tests.tools.machines.slot_scan import chosen

TM1 = ResourceId("tm1")
SMALL, LARGE = profile_of({"cpu": 1, "heap": 100}), profile_of({"cpu": 2, "heap": 200})


@dataclass(frozen=True)
class Slot:
    allocation_id: AllocationId
    resource_id: ResourceId = TM1
    host: str = "h1"
    profile: ResourceProfile = ANY


def test_a_larger_slot_does_not_match_a_smaller_request() -> None:
    assert SMALL.is_matching(SMALL)
    assert not LARGE.is_matching(SMALL)
    assert LARGE.has_at_least(SMALL)
    assert ANY.is_matching(LARGE)
    assert SMALL.is_matching(UNKNOWN)
    with pytest.raises(ConfigurationError, match="UNKNOWN"):
        UNKNOWN.is_matching(SMALL)


def test_profiles_add_and_subtract_exactly() -> None:
    tenth = profile_of({"cpu": 0.1, "gpu": 1})
    assert tenth.merge(profile_of({"cpu": 0.2})) == profile_of({"cpu": 0.3, "gpu": 1})
    assert LARGE.subtract(SMALL) == SMALL
    assert SMALL.subtract(SMALL) == ZERO
    assert SMALL.merge(UNKNOWN) == UNKNOWN
    assert UNKNOWN.merge(ANY) == ANY
    assert SMALL.multiply(2) == LARGE
    assert ANY.multiply(0) == ZERO
    assert ANY.multiply(3) == ANY
    for broken in (lambda: SMALL.subtract(LARGE), lambda: SMALL.multiply(-1)):
        with pytest.raises(ConfigurationError):
            broken()
    with pytest.raises(ConfigurationError, match="below 0"):
        profile_of({"cpu": -1})
    assert str(SMALL) == "cpu=1, heap=100"


def select(slots: list[Slot], wanted: SlotProfile, used: dict | None = None, **kind):
    found = chosen(SlotSelection(**kind), slots, wanted, lambda tm: (used or {}).get(tm, 0.0))
    return found and (found[0].allocation_id, found[1])


def test_twelve_hits_on_the_host_beat_one_on_the_task_manager() -> None:
    slots = [Slot("near", "tm1", "h1"), Slot("far", "tm2", "h2")]
    wishes = (("tm1", "h1"), *[("tm9", "h2")] * 12)
    assert select(slots, SlotProfile(preferred_locations=wishes)) == ("far", Locality.HOST_LOCAL)


def test_without_a_wish_the_first_or_the_least_used_is_taken() -> None:
    slots = [Slot("a", "tm1"), Slot("b", "tm2")]
    used = {"tm1": 0.5}
    assert select(slots, SlotProfile(), used) == ("a", Locality.UNCONSTRAINED)
    assert select(slots, SlotProfile(), used, is_spreading=True) == ("b", Locality.UNCONSTRAINED)
    assert select([], SlotProfile()) is None


def test_a_previous_slot_is_taken_first_and_reserved_ones_are_left_alone() -> None:
    slots = [Slot("a"), Slot("b"), Slot("c")]
    own = SlotProfile(preferred_allocations=frozenset("b"), reserved_allocations=frozenset("abc"))
    assert select(slots, own, is_previous_first=True) == ("b", Locality.LOCAL)
    other = SlotProfile(reserved_allocations=frozenset("ab"))
    assert select(slots, other, is_previous_first=True) == ("c", Locality.UNCONSTRAINED)


def request(name: str, load: float = 1, *previous: str, profile=UNKNOWN) -> SlotRequest:
    return SlotRequest(SlotRequestId(name), profile, load, frozenset(previous))


def matched(matching: Matching, slots: list, requests: list, loads: dict | None = None) -> dict:
    found = match_requests(matching, slots, requests, loads or {})
    return {name: slot.allocation_id for name, slot in found.items()}


def test_each_slot_takes_the_first_request_that_it_matches() -> None:
    slots = [Slot("s1", profile=LARGE), Slot("s2", profile=SMALL)]
    requests = [request("r1", profile=SMALL), request("r2", profile=LARGE)]
    assert matched(Matching.SIMPLE, slots, requests) == {"r1": "s2", "r2": "s1"}


def test_previous_slots_go_back_to_their_requests() -> None:
    slots = [Slot("s1"), Slot("s2"), Slot("s3")]
    requests = [request("r1"), request("r2", 1, "s1"), request("r3", 1, "gone")]
    found = matched(Matching.PREFERRED_SIMPLE, slots, requests)
    assert found == {"r2": "s1", "r1": "s2", "r3": "s3"}
    assert matched(Matching.PREFERRED_TASKS, slots, requests).keys() == {"r1", "r2", "r3"}


def test_by_load_it_is_all_or_nothing_and_heavy_ones_go_to_idle_machines() -> None:
    slots = [Slot("a", "tm1"), Slot("b", "tm2")]
    assert matched(Matching.TASKS, slots, [request(str(i)) for i in range(3)]) == {}
    found = matched(Matching.TASKS, slots, [request("r1", 1), request("r2", 5)], {"tm1": 4})
    assert found == {"r2": "b", "r1": "a"}


def test_by_load_the_budget_of_each_profile_holds() -> None:
    slots = [Slot("a", "tm1", profile=SMALL), Slot("b", "tm2", profile=LARGE)]
    requests = [request("any", 9), request("large", 1, profile=LARGE)]
    assert matched(Matching.TASKS, slots, requests) == {"any": "a", "large": "b"}


def test_the_input_with_the_fewest_places_counts_and_of_equals_the_later() -> None:
    def many() -> list[str]:
        raise AssertionError("skipped before looking at producers")

    assert preferred_by_inputs([(9, many), (1, lambda: ["a"])]) == ["a"]
    assert preferred_by_inputs([(1, lambda: ["a"]), (1, lambda: ["b"])]) == ["b"]
    assert preferred_by_inputs([(1, lambda: ["a"]), (1, lambda: ["b", "c"])]) == ["a"]
    assert preferred_by_inputs([(8, lambda: ["a"] * 8)]) == ["a"]
    assert preferred_by_inputs([(8, lambda: ["a"] * 9)]) == []
    assert preferred_by_inputs([(1, lambda: ["a"]), (1, lambda: [None])]) == ["a"]


def test_producers_of_the_same_call_and_those_not_scheduled_have_no_place() -> None:
    graph = ExecutionGraph(job_graph({"A": 2, "B": 1}, [("A", "B", A2A)]))
    one, two, consumer = graph.vertices
    places = [TaskManagerLocation(ResourceId(f"tm{i}"), "h", 1) for i in range(2)]
    one.execution.location, two.execution.location = places
    one.execution.state = ExecutionState.RUNNING
    assert preferred_locations(consumer, ()) == [places[0]]
    assert preferred_locations(consumer, {one}) == []
    assert preferred_locations(consumer, (), places[1]) == [places[1]]


def test_a_bulk_times_out_only_while_it_cannot_be_served() -> None:
    timeout = BulkTimeout(100, unfulfillable_since_ms=0)
    assert timeout.check(99, has_pending=True, can_be_fulfilled=False) is BulkCheck.PENDING
    assert timeout.check(100, has_pending=True, can_be_fulfilled=True) is BulkCheck.PENDING
    assert timeout.check(150, has_pending=True, can_be_fulfilled=False) is BulkCheck.PENDING
    assert timeout.check(250, has_pending=True, can_be_fulfilled=False) is BulkCheck.TIMEOUT
    assert timeout.check(251, has_pending=False, can_be_fulfilled=False) is BulkCheck.FULFILLED


def test_slots_of_the_bulk_itself_do_not_serve_it_again() -> None:
    slots = [Slot("s1"), Slot("s2")]
    assert is_fulfillable([UNKNOWN], slots, {AllocationId("s1")})
    assert not is_fulfillable([UNKNOWN, UNKNOWN], slots, {AllocationId("s1")})
