"""What former rescales tell. Source: docs/spec/autoscaler.md#effect, #scalability, #where-penstock-differs."""

import math

import pytest

from penstock.engine.model.ids import VertexId
from penstock.ops.autoscaler.rules.history import FormerRescale, ScalingHistory

V = VertexId("v")


def history(*rescales, count=3, age_ms=1000):
    found = ScalingHistory(count, age_ms)
    for number, (before, after, rate) in enumerate(rescales):
        found.note(V, before, rate)
        found.add(V, FormerRescale(number, before, after, rate, rate / before * after))
    return found


@pytest.mark.parametrize(("rate", "is_ineffective"), [(1099, True), (1100, False), (2000, False)])
def test_an_increase_must_bring_a_tenth_of_what_was_expected(rate, is_ineffective):
    """From 2 to 4 subtasks should bring 1,000 more."""
    found = history((2, 4, 1000))
    found.note(V, 4, rate)
    assert bool(found.ineffective(V, 4, 0.1)) == is_ineffective


def test_an_effect_that_is_not_measured_yet_is_not_missing():
    assert history((2, 4, 1000)).ineffective(V, 4, 0.1) == []


def test_the_best_rate_since_the_increase_counts():
    """An hour later each subtask may be slower, and not because of the increase."""
    found = history((2, 4, 1000))
    found.note(V, 4, 1900)
    found.note(V, 4, 900)
    assert found.ineffective(V, 4, 0.1) == []


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4)])
def test_only_an_increase_to_the_present_parallelism_counts(before, after):
    found = history((before, after, 1000))
    found.note(V, after, 1000)
    assert found.ineffective(V, 3, 0.1) == []
    assert bool(found.ineffective(V, after, 0.1)) == (after > before)


def test_increases_without_effect_in_a_row_are_counted_from_the_newest():
    """The one to 4 brought 900 of 1,000, those to 8 and to 16 nothing."""
    found = history((1, 2, 500), (2, 4, 1000), (4, 8, 1900), (8, 16, 1900))
    found.note(V, 16, 1900)
    assert [one.after for one in found.ineffective(V, 16, 0.1)] == [16, 8]


def test_with_infinite_rates_nothing_can_be_told():
    found = history((2, 4, math.inf))
    found.note(V, 4, 1000)
    assert found.ineffective(V, 4, 0.1) == []
    found = history((2, 4, 1000))
    found.note(V, 4, math.inf)
    assert found.ineffective(V, 4, 0.1) == []


def test_it_forgets_what_is_too_much_or_too_old():
    found = history(*[(1, 2, 100)] * 5)
    assert [one.time_ms for one in found.of(V)] == [2, 3, 4]
    found.forget_old(1003)
    assert [one.time_ms for one in found.of(V)] == [3, 4]


def test_a_decision_that_did_not_come_about_is_taken_back():
    found = history((1, 2, 100), (2, 4, 200))
    found.take_back(1)
    assert [one.time_ms for one in found.of(V)] == [0]


def test_a_decision_that_came_about_in_part_is_judged_by_that():
    found = history((2, 4, 1000))
    found.correct(0, {V: 3})
    (one,) = found.of(V)
    assert (one.after, one.expected_rate) == (3, 1500)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(2, 200), (4, 400), (8, 800)], 1.0),
        ([(2, 200), (4, 400)], 1.0),  # too few
        # (1*100 + 2*160 + 4*240) / (100 * 21) = 0.6571
        ([(1, 100), (2, 160), (4, 240)], 0.66),
        ([(1, 100), (2, 100), (4, 100)], 0.5),  # 0.333
        ([(1, 100), (2, 300), (4, 800)], 1.0),  # above 1
        ([(1, 100), (2, math.inf), (4, 240)], 1.0),  # two are known
    ],
)
def test_scalability_is_fitted_to_former_rates(pairs, expected):
    found = history(*[(count, count + 1, rate) for count, rate in pairs])
    assert found.scalability(V, 3, 0.5) == expected
