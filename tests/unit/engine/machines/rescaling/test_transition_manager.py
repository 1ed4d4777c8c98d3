"""When a change becomes a rescale. Expectations: docs/spec/elasticity.md#phases, #checkpoints-as-triggers."""

import pytest

from penstock.engine.machines.rescaling.transition_manager import (
    Phase,
    Prospect,
    TransitionManager,
    TransitionTimings,
)

NOTHING = Prospect(is_sufficient=False, is_desired=False)
SOME = Prospect(is_sufficient=True, is_desired=False)
ALL = Prospect(is_sufficient=True, is_desired=True)
TIMINGS = TransitionTimings(cooldown_ms=30, stabilization_ms=60, max_trigger_delay_ms=30)


def manager(at=Phase.COOLDOWN, timings=TIMINGS):
    """Entered at 0; IDLING from 30 on; STABILIZING since 100; STABILIZED, c = 100, at 160 unless D is longer."""
    made = TransitionManager(timings, 0)
    if at is not Phase.COOLDOWN:
        made.on_timer(30, NOTHING)
    if at in {Phase.STABILIZING, Phase.STABILIZED}:
        made.on_change(100, SOME)
    if at is Phase.STABILIZED:
        made.on_timer(160, SOME)
    assert made.phase is at
    return made


LONG = TransitionTimings(30, 60, 600)
"""D is longer than S, so that it waits in Stabilized."""


def test_the_example_of_the_specification():
    made = TransitionManager(TIMINGS, 0)
    assert made.wakes_at_ms == 30
    assert not made.on_change(12, SOME)
    assert not made.on_timer(30, SOME)
    assert (made.phase, made.wakes_at_ms) == (Phase.STABILIZING, 42)
    assert not made.on_timer(42, SOME)
    assert made.wakes_at_ms == 72
    assert not made.on_trigger(55, SOME)
    assert made.on_timer(72, SOME)
    assert made.phase is Phase.TRANSITIONING
    assert made.wakes_at_ms is None


def test_if_the_rest_comes_the_next_checkpoint_leads_to_the_rescale():
    made = TransitionManager(TIMINGS, 0)
    made.on_change(12, SOME)
    made.on_timer(30, SOME)
    made.on_timer(42, SOME)
    assert not made.on_change(50, ALL)
    assert made.wakes_at_ms == 72
    assert made.on_trigger(55, ALL)


def test_in_cooldown_nothing_happens_before_its_end():
    made = manager()
    assert not made.on_change(1, ALL)
    assert not made.on_trigger(2, ALL)
    assert not made.on_timer(29, ALL)
    assert made.phase is Phase.COOLDOWN


def test_cooldown_remembers_the_first_change_that_suffices():
    made = manager()
    made.on_change(5, NOTHING)
    made.on_change(7, SOME)
    made.on_change(9, ALL)
    made.on_timer(30, ALL)
    assert made.wakes_at_ms == 7 + 30, "it evaluates by the time of the first change"


def test_a_cooldown_without_a_change_ends_in_idling():
    made = manager(Phase.IDLING)
    assert made.wakes_at_ms is None


def test_idling_waits_for_a_change_that_suffices():
    made = manager(Phase.IDLING)
    assert not made.on_trigger(40, ALL)
    made.on_change(41, NOTHING)
    assert made.phase is Phase.IDLING
    made.on_change(42, ALL)
    assert made.phase is Phase.STABILIZING
    assert made.wakes_at_ms == 42 + 30


def test_the_evaluation_is_a_trigger():
    made = manager(Phase.STABILIZING)
    assert not made.on_timer(129, ALL)
    assert made.on_timer(130, ALL)


def test_stabilizing_does_not_go_for_what_is_only_enough():
    made = manager(Phase.STABILIZING)
    assert not made.on_trigger(110, SOME)
    assert made.phase is Phase.STABILIZING


def test_a_change_while_an_evaluation_is_due_makes_no_second_one():
    made = manager(Phase.STABILIZING)
    made.on_change(120, SOME)
    assert made.wakes_at_ms == 130


def test_a_change_after_the_evaluation_makes_another_one():
    made = manager(Phase.STABILIZING)
    made.on_timer(130, SOME)
    assert made.wakes_at_ms == 160
    made.on_change(131, SOME)
    assert made.wakes_at_ms == 160
    made = manager(Phase.STABILIZING, TransitionTimings(30, 60, 10))
    made.on_timer(110, SOME)
    made.on_change(120, SOME)
    assert made.wakes_at_ms == 130
    assert made.on_timer(130, ALL)


def test_in_stabilized_enough_is_enough_at_a_trigger():
    made = manager(Phase.STABILIZED, LONG)
    assert made.wakes_at_ms == 100 + 600
    assert not made.on_change(170, SOME)
    assert made.on_trigger(200, SOME)


def test_in_stabilized_a_trigger_without_enough_leads_back_to_idling():
    made = manager(Phase.STABILIZED, LONG)
    assert not made.on_trigger(200, NOTHING)
    assert made.phase is Phase.IDLING
    assert made.wakes_at_ms is None


def test_in_stabilized_the_longest_delay_is_a_trigger():
    made = manager(Phase.STABILIZED, LONG)
    assert not made.on_timer(699, SOME)
    assert made.on_timer(700, SOME)


def test_what_is_due_in_the_past_happens_at_once():
    """c is 1, the cooldown ends at 100, and c + S and c + D are over by then."""
    made = TransitionManager(TransitionTimings(100, 60, 30), 0)
    made.on_change(1, SOME)
    assert made.on_timer(100, SOME)


def test_a_timer_of_a_former_phase_does_nothing():
    """The evaluation at 130 belongs to Stabilizing, which ends at 110."""
    made = manager(Phase.STABILIZING, TransitionTimings(30, 10, 30))
    assert not made.on_timer(110, SOME)
    assert made.phase is Phase.STABILIZED
    assert not made.on_trigger(111, NOTHING)
    assert not made.on_timer(130, ALL)
    assert made.phase is Phase.IDLING


def test_after_the_transition_nothing_happens_any_more():
    made = manager(Phase.STABILIZING)
    assert made.on_trigger(110, ALL)
    assert not made.on_change(111, ALL)
    assert not made.on_trigger(112, ALL)
    assert not made.on_timer(999, ALL)


def test_a_job_that_waits_for_its_first_slots_begins_as_soon_as_it_has_all():
    made = TransitionManager(TransitionTimings(stabilization_ms=10_000), 0)
    assert not made.on_change(0, ALL)
    assert made.on_timer(0, ALL)


def test_a_job_that_waits_begins_with_enough_after_stabilization():
    made = TransitionManager(TransitionTimings(stabilization_ms=10_000), 0)
    made.on_change(0, NOTHING)
    made.on_timer(0, NOTHING)
    assert made.phase is Phase.IDLING
    made.on_change(500, SOME)
    assert not made.on_timer(500, SOME)
    assert made.wakes_at_ms == 10_500
    assert made.on_timer(10_500, SOME)


@pytest.mark.parametrize("is_more_coming", [True, False])
def test_nothing_is_waited_for_if_no_taskmanager_is_on_its_way(is_more_coming):
    made = manager(Phase.IDLING, TransitionTimings(30, 60, 0, waits_only_for_coming=True))
    prospect = Prospect(is_sufficient=True, is_desired=False, is_more_coming=is_more_coming)
    made.on_change(100, prospect)
    assert made.on_timer(100, prospect) is not is_more_coming


def test_waiting_ends_when_the_last_taskmanager_has_come():
    made = manager(Phase.IDLING, TransitionTimings(30, 60, 0, waits_only_for_coming=True))
    made.on_change(100, SOME)
    assert not made.on_timer(100, SOME)
    last = Prospect(is_sufficient=True, is_desired=False, is_more_coming=False)
    made.on_change(105, last)
    assert made.on_timer(105, last)
