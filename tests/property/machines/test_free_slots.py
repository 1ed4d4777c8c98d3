"""The indexed ways to choose slots choose what plain scans choose
(docs/spec/slots.md#choosing-a-slot).
"""

from collections import Counter, defaultdict
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.machines.scheduling.bulks import is_fulfillable
from penstock.engine.machines.slots.resource_profile import (
    ANY,
    UNKNOWN,
    ResourceProfile,
    profile_of,
)
from penstock.engine.machines.slots.slot_matching import (
    SlotProfile,
    SlotRequest,
    SlotSelection,
    match_by_load,
    match_simply,
)
from penstock.engine.machines.slots.slot_pool import FreeSlots
from penstock.engine.model.ids import AllocationId, ResourceId, SlotRequestId
from tests.tools.machines.slot_scan import scanned

SMALL = profile_of({"cpu": 1})
HOST_OF = {f"tm{number}": f"host{number % 3}" for number in range(6)}
TASK_MANAGERS = st.sampled_from(sorted(HOST_OF))
SLOT_PROFILES = st.sampled_from([ANY, SMALL])
REQUEST_PROFILES = st.sampled_from([UNKNOWN, UNKNOWN, SMALL])


@dataclass(frozen=True)
class Slot:
    allocation_id: AllocationId
    resource_id: ResourceId
    profile: ResourceProfile = ANY

    @property
    def host(self) -> str:
        return HOST_OF[self.resource_id]


@st.composite
def wishes(draw: st.DrawFn) -> SlotProfile:
    places = draw(st.lists(TASK_MANAGERS, max_size=5))
    allocations = st.frozensets(st.integers(0, 20).map(lambda n: AllocationId(f"a{n}")), max_size=3)
    return SlotProfile(
        draw(REQUEST_PROFILES),
        tuple((ResourceId(place), HOST_OF[place]) for place in places),
        draw(allocations),
        draw(allocations),
    )


class Pool:
    """Slots that come, are taken and go, with the utilisation that this makes."""

    def __init__(self, selection: SlotSelection) -> None:
        self.selection = selection
        self.held: dict[str, list[Slot]] = defaultdict(list)
        self.used: list[Slot] = []
        self.free: dict[AllocationId, Slot] = {}
        self.index: FreeSlots[Slot] = FreeSlots(selection, self.utilization)

    def utilization(self, resource_id: ResourceId) -> float:
        held = self.held[resource_id]
        free = sum(slot.resource_id == resource_id for slot in self.free.values())
        return (len(held) - free) / len(held) if held else 0.0

    def put(self, slot: Slot) -> None:
        self.free[slot.allocation_id] = slot
        self.index.add(slot)
        self.index.moved(slot.resource_id)

    def drop(self, slot: Slot) -> None:
        del self.free[slot.allocation_id]
        self.index.remove(slot)
        self.index.moved(slot.resource_id)

    def take(self, wanted: SlotProfile) -> None:
        found = self.index.select(wanted)
        assert found == scanned(self.selection, self.free.values(), wanted, self.utilization)
        if found is not None:
            self.drop(found[0])
            self.used.append(found[0])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), TASK_MANAGERS, SLOT_PROFILES),
        st.tuples(st.just("come"), TASK_MANAGERS, SLOT_PROFILES),
        st.tuples(st.just("take"), wishes(), st.just(None)),
        st.tuples(st.just("take"), wishes(), st.just(None)),
        st.tuples(st.just("give back"), st.integers(0, 30), st.just(None)),
        st.tuples(st.just("go"), st.integers(0, 30), st.just(None)),
        st.tuples(st.just("lose"), TASK_MANAGERS, st.just(None)),
    ),
    max_size=60,
)


@given(STEPS, st.booleans(), st.booleans())
def test_the_index_of_free_slots_chooses_what_a_scan_of_them_chooses(
    steps: list, is_spreading: bool, is_previous_first: bool
) -> None:
    pool = Pool(SlotSelection(is_spreading, is_previous_first))
    for number, (what, which, profile) in enumerate(steps):
        if what == "come":
            slot = Slot(AllocationId(f"a{number}"), ResourceId(which), profile)
            pool.held[which].append(slot)
            pool.put(slot)
        elif what == "take":
            pool.take(which)
        elif what == "give back" and pool.used:
            pool.put(pool.used.pop(which % len(pool.used)))
        elif what == "go" and pool.free:
            slot = list(pool.free.values())[which % len(pool.free)]
            pool.held[slot.resource_id].remove(slot)
            pool.drop(slot)
        elif what == "lose":
            for slot in [s for s in pool.free.values() if s.resource_id == which]:
                pool.drop(slot)
            pool.used = [slot for slot in pool.used if slot.resource_id != which]
            pool.held.pop(which, None)
        assert list(pool.index) == list(pool.free.values())
        assert len(pool.index) == len(pool.free)


def test_what_spreading_remembers_does_not_grow_with_time() -> None:
    pool = Pool(SlotSelection(is_spreading=True))
    for number in range(6):
        slot = Slot(AllocationId(f"a{number}"), ResourceId(f"tm{number}"))
        pool.held[slot.resource_id].append(slot)
        pool.put(slot)
    for _ in range(2000):
        pool.take(SlotProfile())
        pool.put(pool.used.pop())
    shelves = pool.index.by_profile[ANY]
    assert len(shelves.all.heap) < 100
    assert all(len(shelf.heap) < 100 for shelf in shelves.by_host.values())


# ------------------------------------------------------------------ matching


@st.composite
def many_slots(draw: st.DrawFn, profiles: st.SearchStrategy = SLOT_PROFILES) -> list[Slot]:
    kinds = draw(st.lists(st.tuples(TASK_MANAGERS, profiles), max_size=12))
    return [
        Slot(AllocationId(f"a{number}"), ResourceId(place), profile)
        for number, (place, profile) in enumerate(kinds)
    ]


@st.composite
def many_requests(
    draw: st.DrawFn, profiles: st.SearchStrategy = REQUEST_PROFILES
) -> list[SlotRequest]:
    kinds = draw(st.lists(st.tuples(profiles, st.integers(1, 4)), max_size=12))
    return [
        SlotRequest(SlotRequestId(f"r{number}"), profile, load)
        for number, (profile, load) in enumerate(kinds)
    ]


@given(many_slots(), many_requests())
def test_each_slot_meets_the_first_request_that_it_matches(
    slots: list[Slot], requests: list[SlotRequest]
) -> None:
    waiting = {request.request_id: request for request in requests}
    expected = {}
    for slot in slots:
        first = next((r for r in waiting.values() if slot.profile.is_matching(r.profile)), None)
        if first is not None:
            expected[first.request_id] = slot
            del waiting[first.request_id]
    assert match_simply(slots, requests) == expected


def test_few_slots_look_at_few_of_many_requests() -> None:
    looked_at = []

    def requests():
        for number in range(10_000):
            looked_at.append(number)
            yield SlotRequest(SlotRequestId(f"r{number}"))

    slots = [Slot(AllocationId(f"a{number}"), ResourceId("tm0")) for number in range(3)]
    assert list(match_simply(slots, requests())) == ["r0", "r1", "r2"]
    assert len(looked_at) == 3


@given(
    many_slots(st.just(SMALL)),
    many_requests(),
    st.dictionaries(TASK_MANAGERS, st.integers(0, 5), max_size=3),
)
def test_each_request_by_load_goes_where_the_least_is_to_do(
    slots: list[Slot], requests: list[SlotRequest], loads: dict
) -> None:
    load, free, expected = Counter(loads), list(slots), {}
    if len(slots) >= len(requests):
        for request in sorted(requests, key=lambda request: -request.load):
            slot = min(free, key=lambda slot: load[slot.resource_id])
            expected[request.request_id] = slot
            free.remove(slot)
            load[slot.resource_id] += request.load
    assert match_by_load(slots, requests, loads) == expected


@given(st.lists(REQUEST_PROFILES, max_size=10), many_slots(), st.sets(st.integers(0, 12)))
def test_pending_requests_take_the_first_slot_that_matches(
    pending: list[ResourceProfile], slots: list[Slot], taken: set[int]
) -> None:
    fulfilled = {AllocationId(f"a{number}") for number in taken}
    left = [slot for slot in slots if slot.allocation_id not in fulfilled]
    expected = True
    for profile in pending:
        slot = next((slot for slot in left if slot.profile.is_matching(profile)), None)
        expected = expected and slot is not None
        if slot is None:
            break
        left.remove(slot)
    assert is_fulfillable(pending, slots, fulfilled) is expected
