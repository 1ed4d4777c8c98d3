"""The autoscaler under load curves: it follows the load, does not flap, and gives up where it cannot help."""

import pytest

from penstock.ops.autoscaler.rules.autoscaler import Autoscaler, DelayedScaleDowns
from penstock.ops.autoscaler.rules.decisions import EventKind
from penstock.ops.autoscaler.rules.history import ScalingHistory
from simulation.autoscaler import driving, table
from simulation.autoscaler.curves import CURVES, PLAIN, SKEWED
from simulation.autoscaler.driving import drive
from simulation.autoscaler.least import LAG_BOUND_S, least_slots
from simulation.autoscaler.model import ModelJob, ModelVertex

SEED = 11
HELPED = [curve.name for curve in CURVES if curve.is_helped]
FLAPPING_S = 1800.0


@pytest.fixture(scope="module")
def results():
    return {curve.name: drive(curve, SEED) for curve in CURVES}


@pytest.mark.parametrize("name", [curve.name for curve in CURVES])
def test_it_does_not_flap(results, name):
    """Nothing goes up, down and up again within half an hour, and rescales are few."""
    result = results[name]
    assert result.reversals(FLAPPING_S) == []
    assert 1 <= len(result.rescales) <= result.curve.rescales_max


@pytest.mark.parametrize("name", HELPED)
def test_it_holds_at_most_a_fifth_more_slots_than_the_least(results, name):
    result = results[name]
    assert result.mean_slots <= 1.2 * result.least_slots


@pytest.mark.parametrize("name", HELPED)
def test_the_lag_is_within_its_bound_when_there_was_time_to_catch_up(results, name):
    assert results[name].settled_lag_s <= LAG_BOUND_S


@pytest.mark.parametrize("name", HELPED)
def test_where_it_helps_it_does_not_give_up(results, name):
    assert EventKind.GROWTH_BLOCKED not in results[name].kinds()


def test_where_one_key_is_the_limit_it_gives_up(results):
    """The busiest subtask of `count` gets a quarter of all records with 4 subtasks or with 400."""
    result = results["skew"]
    assert {EventKind.INEFFECTIVE, EventKind.GROWTH_BLOCKED} <= result.kinds()
    blocked_s = min(
        event.time_ms / 1000 for event in result.events if event.kind is EventKind.GROWTH_BLOCKED
    )
    later = [one for one in result.rescales if one.time_s > blocked_s]
    assert [
        name for one in later for name, (before, after) in one.parallelism.items() if after > before
    ] == []
    assert max(count for _, count in result.slots) <= 64


def test_a_seed_repeats():
    curve = next(curve for curve in CURVES if curve.name == "step")
    first, second = drive(curve, 3), drive(curve, 3)
    assert (first.rescales, first.slots, first.lags_s) == (
        second.rescales, second.slots, second.lags_s
    )  # fmt: skip
    assert drive(curve, 4).lags_s != first.lags_s


def test_the_autoscaler_is_not_imitated():
    assert driving.Autoscaler is Autoscaler


def test_every_curve_is_in_the_table(results):
    lines = list(table.lines(list(results.values())))
    assert len(lines) == 1 + len(CURVES)
    for curve, line in zip(CURVES, lines[1:], strict=True):
        assert line.startswith(curve.name)


# ---------------------------------------------------------------------- planted bugs are found


def test_without_the_wait_before_a_scale_down_it_follows_each_wave(monkeypatch):
    monkeypatch.setattr(DelayedScaleDowns, "ask", lambda _self, _vertex, _now, count: count)
    curve = next(curve for curve in CURVES if curve.name == "waves")
    result = drive(curve, SEED)
    assert len(result.rescales) > curve.rescales_max
    assert result.reversals(FLAPPING_S) != []


def test_without_a_look_at_the_effect_it_grows_on():
    curve = next(curve for curve in CURVES if curve.name == "skew")
    result = drive(curve, SEED, {"job.autoscaler.scaling.effectiveness.detection.enabled": False})
    assert max(count for _, count in result.slots) > 200


def test_if_no_increase_ever_seems_to_help_it_is_seen(monkeypatch):
    monkeypatch.setattr(ScalingHistory, "note", lambda *_arguments: None)
    monkeypatch.setattr(
        "penstock.ops.autoscaler.rules.history.FormerRescale.gain", property(lambda _self: 0.0)
    )
    curve = next(curve for curve in CURVES if curve.name == "step")
    assert EventKind.GROWTH_BLOCKED in drive(curve, SEED).kinds()


# ---------------------------------------------------------------------- the model


def test_a_vertex_does_what_its_slowest_subtask_allows():
    hot = ModelVertex("v", 1000, is_keyed=True, hot_share=0.25)
    assert [hot.capacity(count, 0) for count in (1, 2, 4, 8)] == [1000, 2000, 4000, 4000]
    # 128 key groups on 3 subtasks are 43, 43 and 42.
    keyed = ModelVertex("v", 1000, is_keyed=True)
    assert keyed.capacity(3, 0) == pytest.approx(1000 * 128 / 43)
    source = ModelVertex("v", 1000, partitions=5)
    assert [source.capacity(count, 0) for count in (4, 5, 9)] == [2500, 5000, 5000]
    tiring = ModelVertex("v", 1000, lost_an_hour=0.1)
    assert tiring.capacity(2, 7200) == pytest.approx(2000 * 0.81)


def test_the_slowest_vertex_sets_the_pace_and_holds_those_before_it():
    vertices = (
        ModelVertex("fast", 1000),
        ModelVertex("slow", 100, inputs=("fast",)),
        ModelVertex("end", 1000, inputs=("slow",)),
    )
    job = ModelJob(vertices, {"fast": 1, "slow": 2, "end": 1})
    for second in range(100):
        job.step(second, 1.0, 500.0)
        if second == 49:
            job.measure(1.0, driving.random.Random(0), 0.0)
    found = job.measure(50.0, driving.random.Random(0), 0.0)
    assert [found[name].records_in_per_second for name in found] == pytest.approx([200] * 3)
    assert [found[name].busy_ms_max for name in found] == pytest.approx([200, 1000, 200])
    assert found["fast"].back_pressured_ms == pytest.approx(800)
    assert (found["slow"].back_pressured_ms, found["end"].back_pressured_ms) == (0, 0)
    # 300 a second wait, but for what fits into the queue.
    assert job.lag == pytest.approx(100 * 300, rel=0.03)


def test_the_least_slots_make_good_an_outage():
    """30 s stand still, and 5 s may wait 90 s later: (30 + 90 - 5) / 90 of the load, 1.278. 18,000 a second of 2,000 need 11.5."""
    assert least_slots((ModelVertex("source", 2000),), 18_000, 0) == 12
    alone = [least_slots((ModelVertex(one.name, one.rate),), 10_000, 0) for one in PLAIN[:2]]
    assert alone == [7, 13]


def test_no_number_of_slots_is_enough_against_a_hot_key():
    assert least_slots(SKEWED, 10_000, 0) > 2 * least_slots(PLAIN, 10_000, 0)
