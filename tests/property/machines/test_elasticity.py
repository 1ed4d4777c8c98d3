"""Laws of elasticity, whatever slots, bounds and times there are. Source: docs/spec/elasticity.md."""

from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.machines.rescaling.slot_allocator import (
    FormerAssignment,
    FormerPlace,
    SharingGroup,
    desired_slots,
    minimum_slots,
    parallelism_for,
)
from penstock.engine.machines.rescaling.transition_manager import (
    Phase,
    Prospect,
    TransitionManager,
    TransitionTimings,
)
from penstock.engine.model.elastic import ParallelismBounds
from tests.tools.machines.slot_plans import make_plan


@dataclass(frozen=True)
class Slot:
    allocation_id: str
    resource_id: str
    host: str


BOUNDS = st.tuples(st.integers(1, 6), st.integers(0, 8)).map(
    lambda one: ParallelismBounds(one[0], one[0] + one[1])
)
GROUPS = st.lists(st.lists(BOUNDS, min_size=1, max_size=3), min_size=1, max_size=4).map(
    lambda groups: tuple(
        SharingGroup(f"g{g}", {f"v{g}.{v}": one for v, one in enumerate(bounds)})
        for g, bounds in enumerate(groups)
    )
)


@given(GROUPS, st.integers(0, 80))
def test_all_slots_are_used_up_to_what_is_desired_and_no_bound_is_broken(groups, slots):
    found = parallelism_for(groups, slots)
    if slots < minimum_slots(groups):
        assert found is None
        return
    assert found.slots == min(slots, desired_slots(groups))
    for group in groups:
        assert group.lower <= found.slots_of_group[group.name] <= group.upper
        for vertex, bounds in group.bounds.items():
            assert bounds.lower <= found.of_vertex[vertex] <= bounds.upper


@given(GROUPS, st.integers(0, 80))
def test_nobody_loses_by_one_more_slot(groups, slots):
    before, after = parallelism_for(groups, slots), parallelism_for(groups, slots + 1)
    if before is None:
        return
    for name, count in before.slots_of_group.items():
        assert after.slots_of_group[name] >= count
    for vertex, count in before.of_vertex.items():
        assert after.of_vertex[vertex] >= count


SLOTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=40).map(
    lambda places: [
        Slot(f"s{number:02}", f"tm{taskmanager}", f"host{taskmanager % 2}")
        for number, (taskmanager, _) in enumerate(places)
    ]
)


def former_of(plan, slots, state_bytes):
    hosts = {slot.allocation_id: slot.host for slot in slots}
    parallelism = plan.parallelism.of_vertex
    return FormerAssignment(
        {subtask: FormerPlace(slot, hosts[slot]) for subtask, slot in plan.slot_of().items()},
        parallelism,
        dict.fromkeys(parallelism, 128),
        dict.fromkeys(list(parallelism)[::2], state_bytes),
    )


@given(GROUPS, SLOTS, SLOTS, st.integers(0, 10**6))
def test_each_subtask_has_one_slot_and_no_slot_has_two_groups(groups, slots, later, state_bytes):
    plan = make_plan(groups, slots)
    if plan is None:
        return
    again = make_plan(groups, later, former=former_of(plan, slots, state_bytes))
    for made, given_slots in ((plan, slots), (again, later)):
        if made is None:
            continue
        subtasks = Counter(
            subtask for group in made.assignment.values() for subtask in group.subtasks
        )
        assert set(subtasks.values()) == {1}
        assert Counter(subtask.vertex_id for subtask in subtasks) == made.parallelism.of_vertex
        assert set(made.assignment) <= {slot.allocation_id for slot in given_slots}
        assert len(made.assignment) == made.parallelism.slots


@given(GROUPS, SLOTS, st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_with_the_same_parallelism_everybody_keeps_the_slot(groups, slots, state_bytes, random):
    plan = make_plan(groups, slots)
    if plan is None:
        return
    turned = random.sample(slots, len(slots))
    again = make_plan(groups, turned, former=former_of(plan, slots, state_bytes))
    assert again.slot_of() == plan.slot_of()


PROSPECTS = st.sampled_from([
    Prospect(is_sufficient=False, is_desired=False),
    Prospect(is_sufficient=True, is_desired=False),
    Prospect(is_sufficient=True, is_desired=True),
])
TIMINGS = st.builds(
    TransitionTimings, st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.booleans()
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["change", "trigger", "timer", "late"]), st.integers(0, 30), PROSPECTS
    )
)


@given(TIMINGS, STEPS)
def test_a_transition_comes_once_after_the_cooldown_and_with_enough(timings, steps):
    manager = TransitionManager(timings, 0)
    now_ms, fired = 0, 0
    for step, later_ms, prospect in steps:
        now_ms += later_ms
        at_ms = manager.wakes_at_ms
        if step == "timer" and at_ms is not None:
            now_ms = max(now_ms, at_ms)
        call = {"change": manager.on_change, "trigger": manager.on_trigger}.get(
            step, manager.on_timer
        )
        if call(now_ms, prospect):
            fired += 1
            assert now_ms >= timings.cooldown_ms
            assert prospect.is_sufficient
        assert (manager.phase is Phase.TRANSITIONING) == bool(fired)
    assert fired <= 1


@given(
    TIMINGS,
    st.lists(st.integers(0, 49), min_size=1).map(sorted),
    st.integers(0, 100),
)
def test_changes_within_stabilization_make_one_transition(timings, at, first_ms):
    """Whatever comes within S of the first change is in the one rescale: it is not there before."""
    timings = TransitionTimings(timings.cooldown_ms, 50, timings.max_trigger_delay_ms)
    first_ms += timings.cooldown_ms
    manager = TransitionManager(timings, 0)
    manager.on_timer(timings.cooldown_ms, Prospect(is_sufficient=False, is_desired=False))
    enough = Prospect(is_sufficient=True, is_desired=False)
    fired = []
    for now_ms in [first_ms, *(first_ms + one for one in at)]:
        fired += [now_ms] * manager.on_timer(now_ms, enough)
        fired += [now_ms] * manager.on_change(now_ms, enough)
    assert fired == []
    while (now_ms := manager.wakes_at_ms) is not None:
        fired += [now_ms] * manager.on_timer(now_ms, enough)
    assert len(fired) == 1
    assert fired[0] == first_ms + max(50, timings.max_trigger_delay_ms)
