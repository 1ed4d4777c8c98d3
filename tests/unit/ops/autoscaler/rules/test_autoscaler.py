"""The autoscaler as the master sees it: measurements in, decisions out. Source: docs/spec/autoscaler.md#example, #gates, #window,
#where-penstock-differs.
"""

import pytest

from penstock.engine.model.config import Settings
from penstock.ops.autoscaler.rules.decisions import EventKind
from penstock.ops.autoscaler.rules.samples import (
    ClusterRoom,
    JobRestarted,
    MemorySample,
    VertexSample,
)
from penstock.ops.autoscaler.rules.settings import autoscaler_settings_of
from tests.tools.machines.autoscaler_bench import (
    FLINK,
    FULL,
    HOUR,
    MAP,
    MINUTE,
    SINK,
    SOURCE,
    Bench,
    example,
    settings_of,
)
from tests.tools.machines.topologies import topology_of


def decided(**options):
    return Bench(settings_of(**options)).observe_until(FULL).decide()


def test_the_worked_example_is_reproduced():
    bench = Bench(settings_of()).observe_until(FULL)
    decision = bench.decide()
    assert decision.is_applied
    assert decision.orders == {SOURCE: 10, MAP: 8}
    assert [change.is_outside for change in decision.changes] == [True, False]
    vertices = decision.evaluation.vertices
    whole = {name: round(one.true_rate) for name, one in vertices.items()}
    assert whole == {SOURCE: 8_421, MAP: 19_355, SINK: 30_000}
    assert [one.target_rate for one in vertices.values()] == [10_000, 15_000, 3_750]
    assert [one.catch_up_rate for one in vertices.values()] == [500, 750, 187.5]
    assert [one.capacity for one in vertices.values()] == [16_452, 24_679, 6_170]
    bounds = [(one.up_bound, one.down_bound) for one in vertices.values()]
    assert bounds == [(10_500, 27_167), (15_750, 40_750), (3_938, 10_188)]
    assert [one.is_outside for one in vertices.values()] == [True, False, True]
    proposals = decision.proposals
    assert [round(one.factor, 3) for one in proposals.values()] == [1.954, 1.275, 0.4]
    assert [one.wanted for one in proposals.values()] == [8, 8, 1]
    assert [one.parallelism for one in proposals.values()] == [10, 8, 1]
    assert round(vertices[SOURCE].expected_rate(10)) == 21_053
    assert not decision.evaluation.is_backlog
    assert (decision.slots_before, decision.slots_after) == (6, 10)


def test_a_decision_tells_its_numbers():
    reasons = {change.name: change.reason for change in decided().changes}
    for number in ("from 4 to 10", "8,421/s", "16,452/s", "10,000/s", "500/s", "30 min", "70%"):
        assert number in reasons["source"]
    assert "goes along" in reasons["map"]


def test_with_the_profile_of_penstock_the_example_is_not_aligned():
    """Aligned, 8 would be 10: a quarter more, and less than a quarter is asked for. Waiting records shall be gone in 10 min:
    1,500 + 10,000 x 2/600 + 10,000/0.7 = 15,819 of 8,421, and 2,250 + 50 + 15,000/0.7 = 23,729 of 19,355.
    """
    early = Bench(autoscaler_settings_of(Settings())).observe_until(70_000, every_ms=10_000)
    assert early.decide() is None
    bench = Bench(autoscaler_settings_of(Settings()))
    decision = bench.observe_until(80_000, every_ms=10_000).decide()
    assert [one.capacity for one in decision.evaluation.vertices.values()][:2] == [15_819, 23_729]
    assert decision.orders == {SOURCE: 8, MAP: 8}


def test_with_the_profile_of_penstock_a_vertex_doubles_at_most():
    """Then 12 is aligned: 13 subtasks have 9 or 10 of 128 key groups, 12 have 10 or 11."""
    bench = Bench(autoscaler_settings_of(Settings()))
    bench.observe_until(80_000, example(lag=90_000_000), every_ms=10_000)
    assert bench.decide().orders == {SOURCE: 8, MAP: 13, SINK: 4}


@pytest.mark.parametrize("minutes", [5, 9])
def test_nothing_is_decided_before_the_window_is_full(minutes):
    bench = Bench(settings_of()).observe_until(minutes * MINUTE)
    assert bench.decide() is None


def test_a_restart_empties_the_window():
    bench = Bench(settings_of()).observe_until(FULL)
    bench.autoscaler.step(JobRestarted(), bench.now_ms)
    bench.observe_until(2 * FULL - MINUTE)
    assert bench.decide() is None
    bench.observe_until(2 * FULL)
    assert bench.decide().orders == {SOURCE: 10, MAP: 8}


def test_a_decision_that_is_under_way_is_not_made_again():
    bench = Bench(settings_of()).observe_until(FULL)
    assert bench.decide() is not None
    bench.observe_until(FULL + MINUTE)
    assert bench.decide() is None


def test_the_outcome_of_a_decision_is_kept_with_it():
    bench = Bench(settings_of()).observe_until(FULL)
    bench.decide()
    bench.rescaled({SOURCE: 10, MAP: 8, SINK: 2}, 3_000, FULL + 3_000)
    (kept,) = bench.autoscaler.decisions
    assert (kept.outcome.took_ms, kept.outcome.refusal) == (3_000, "")


def test_a_refused_decision_is_told_and_tried_again_after_a_window():
    bench = Bench(settings_of()).observe_until(FULL)
    bench.decide()
    (event,) = bench.refused("no slots came within 5 min")
    assert event.kind is EventKind.REFUSED
    assert "no slots came within 5 min" in event.text
    assert bench.autoscaler.decisions[0].outcome.refusal == "no slots came within 5 min"
    bench.observe_until(2 * FULL - MINUTE)
    assert bench.decide() is None
    bench.observe_until(2 * FULL)
    assert bench.decide().orders == {SOURCE: 10, MAP: 8}


def test_without_a_decision_nothing_is_refused():
    assert Bench(settings_of()).refused("no slots") == ()


def test_a_dry_run_recommends_once():
    bench = Bench(settings_of(scaling_enabled=False)).observe_until(FULL)
    decision = bench.decide()
    assert not decision.is_applied
    assert decision.orders == {}
    assert {change.vertex_id: change.after for change in decision.changes} == {SOURCE: 10, MAP: 8}
    assert "job.autoscaler.scaling.enabled" in decision.held_by
    bench.observe_until(FULL + MINUTE, example())
    assert bench.decide() is None
    assert len(bench.autoscaler.decisions) == 1


@pytest.mark.parametrize(
    ("room", "options", "kind"),
    [
        (ClusterRoom(slots_max=9), {}, EventKind.CLUSTER_FULL),
        (None, {"quota_cpu": 9}, EventKind.QUOTA_REACHED),
        (ClusterRoom(memory_per_slot=1 << 30), {"quota_memory": "9 gb"}, EventKind.QUOTA_REACHED),
    ],
)
def test_where_ten_slots_cannot_be_had_nothing_changes_and_it_is_told(room, options, kind):
    bench = Bench(settings_of(**options)).observe_until(FULL)
    decision = bench.decide(room)
    assert decision.orders == {}
    assert [event.kind for event in decision.events] == [kind]
    assert "10" in decision.events[0].text
    bench.observe_until(FULL + MINUTE, example())
    assert bench.decide(room) is None


def test_ten_slots_that_can_be_had_are_asked_for():
    options = {"quota_cpu": 10, "quota_memory": "10 gb"}
    bench = Bench(settings_of(**options)).observe_until(FULL)
    room = ClusterRoom(slots_max=10, memory_per_slot=1 << 30)
    assert bench.decide(room).orders == {SOURCE: 10, MAP: 8}


@pytest.mark.parametrize("memory", [MemorySample(gc_pressure=0.31), MemorySample(heap_usage=0.96)])
def test_under_memory_pressure_nothing_changes(memory):
    options = {"memory_gc__pressure_threshold": 0.3, "memory_heap__usage_threshold": 0.95}
    bench = Bench(settings_of(**options)).observe_until(FULL, memory=memory)
    decision = bench.decide()
    assert decision.orders == {}
    assert [event.kind for event in decision.events] == [EventKind.MEMORY_PRESSURE]


def test_at_the_thresholds_of_memory_there_is_no_pressure():
    options = {"memory_gc__pressure_threshold": 0.25, "memory_heap__usage_threshold": 0.5}
    memory = MemorySample(gc_pressure=0.25, heap_usage=0.5)
    bench = Bench(settings_of(**options)).observe_until(FULL, memory=memory)
    assert bench.decide().orders == {SOURCE: 10, MAP: 8}


def test_an_excluded_vertex_keeps_its_parallelism():
    assert decided(vertex_exclude_ids="source") is None
    assert decided(vertex_exclude_ids="map").orders == {SOURCE: 10}


def decided_orders(decision):
    return {} if decision is None else decision.orders


def calm(sink: int = 2):
    """Source and map fit. The sink has nearly nothing to do: 100 of 1,000 ms for 3,000/s, so 1 subtask would do."""
    return {
        SOURCE: VertexSample(4, busy_ms_max=690, records_in_per_second=8_000, pending_records=0),
        MAP: VertexSample(8, busy_ms_max=690, records_in_per_second=8_000),
        SINK: VertexSample(sink, busy_ms_max=100, records_in_per_second=3_000),
    }


def test_a_scale_down_waits_for_its_interval():
    bench = Bench(settings_of(catch__up_duration=0))
    assert bench.decide_all_until(FULL + MINUTE, calm()) == []
    decisions = bench.decide_all_until(FULL + HOUR, calm())
    assert [(one.time_ms, one.orders) for one in decisions] == [(FULL + HOUR, {SINK: 1})]


def test_a_scale_down_goes_to_the_largest_target_of_the_interval():
    """8 subtasks at 400 ms do 7,500/s; 3,000 / 0.7 = 4,286/s takes 4.57 of 8. At 100 ms the limit of a step leaves 4."""
    bench = Bench(settings_of(catch__up_duration=0, metrics_window="1 min"))

    def busy(now_ms):
        is_busier = 40 * MINUTE <= now_ms < 42 * MINUTE
        return calm() | {
            SINK: VertexSample(
                8, busy_ms_max=400 if is_busier else 100, records_in_per_second=3_000
            )
        }

    decisions = bench.decide_all_until(6 * MINUTE + HOUR, busy)
    assert [one.orders for one in decisions] == [{SINK: 5}]


def test_an_increase_forgets_that_a_scale_down_waits():
    bench = Bench(settings_of(catch__up_duration=0, metrics_window="1 min"))

    def busy(now_ms):
        is_busier = 40 * MINUTE <= now_ms < 43 * MINUTE
        # At 720 ms it wants 3 and can follow with 2; so nothing changes, but it no longer wants fewer.
        return calm() | {
            SINK: VertexSample(
                2, busy_ms_max=720 if is_busier else 100, records_in_per_second=3_000
            )
        }

    assert bench.decide_all_until(43 * MINUTE + HOUR, busy) == []
    decisions = bench.decide_all_until(44 * MINUTE + HOUR, busy)
    assert [one.orders for one in decisions] == [{SINK: 1}]


def test_a_decision_forgets_that_a_scale_down_waits():
    """The sink waits since the decision on the others, so that half an hour is over a minute later."""
    bench = Bench(settings_of(scale__down_interval="30 min")).observe_until(FULL, example())
    assert bench.decide().orders == {SOURCE: 10, MAP: 8}
    (later,) = bench.decide_all_until(FULL + 31 * MINUTE, example())
    assert (later.time_ms, later.orders[SINK]) == (FULL + 31 * MINUTE, 1)


def test_a_wish_from_before_a_restart_with_less_does_not_make_a_vertex_grow():
    """8 subtasks should have become 4. After a failure there are 3, which should become 2."""
    bench = Bench(settings_of(catch__up_duration=0, scale__down_interval="30 min"))
    bench.observe_until(FULL, calm(sink=8))
    assert bench.decide() is None
    bench.autoscaler.step(JobRestarted(), FULL)
    decisions = bench.decide_all_until(FULL + 31 * MINUTE, calm(sink=3))
    assert [(one.time_ms, one.orders) for one in decisions] == [(FULL + 31 * MINUTE, {SINK: 2})]


def test_nothing_changes_while_all_are_within_their_bounds():
    """At 800 ms a vertex wants more than it has, but it can follow."""
    assert 800 < 1000 * (0.7 + 0.3)
    samples = {
        SOURCE: VertexSample(4, busy_ms_max=800, records_in_per_second=8_000, pending_records=0),
        MAP: VertexSample(8, busy_ms_max=800, records_in_per_second=8_000),
        SINK: VertexSample(2, busy_ms_max=800, records_in_per_second=3_000),
    }
    bench = Bench(settings_of(catch__up_duration=0)).observe_until(FULL, samples)
    assert bench.decide() is None
    assert bench.autoscaler.latest is not None


@pytest.mark.parametrize(("lag_s", "orders"), [(299, {SOURCE: 6, SINK: 1}), (301, {SOURCE: 6})])
def test_during_a_backlog_nothing_shrinks(lag_s, orders):
    """A backlog is more than 5 min of what the source reads."""
    source = VertexSample(
        4, busy_ms_max=1000, records_in_per_second=8_000, pending_records=8_000 * lag_s
    )
    bench = Bench(settings_of(catch__up_duration="10 h", scale__down_interval=0))
    bench.observe_until(FULL, calm() | {SOURCE: source})
    assert bench.decide().orders == orders
    assert bench.autoscaler.latest.is_backlog == (lag_s > 300)


def test_a_finished_vertex_and_one_without_busy_time_are_left_out():
    samples = example() | {
        SINK: VertexSample(2, is_finished=True),
        MAP: VertexSample(6, busy_ms_max=float("nan"), records_in_per_second=12_000),
    }
    bench = Bench(settings_of()).observe_until(FULL, samples)
    assert bench.decide().orders == {SOURCE: 10}
    assert set(bench.autoscaler.latest.vertices) == {SOURCE}


ALONE = topology_of([SOURCE])


def skewed(bench, parallelism):
    """A window of a source that does 8,000/s whatever its parallelism, and gets 2,000/s more. Return its decision."""
    begin_ms = bench.now_ms

    def samples(now_ms):
        lag = 2_000 * (now_ms - begin_ms) / 1000
        return {
            SOURCE: VertexSample(
                parallelism, busy_ms_max=1000, records_in_per_second=8_000, pending_records=lag
            )
        }

    decision = bench.observe_until(begin_ms + FULL, samples).decide()
    if decision is not None and decision.orders:
        bench.rescaled(decision.orders, 1_000)
    return decision


def kinds(decision):
    return [event.kind for event in decision.events]


def test_an_increase_without_effect_is_told_and_does_not_block_unless_it_is_asked_to():
    bench = Bench(settings_of(), ALONE)
    first = skewed(bench, 4)
    assert first.orders[SOURCE] > 4
    assert kinds(first) == []
    second = skewed(bench, first.orders[SOURCE])
    assert kinds(second) == [EventKind.INEFFECTIVE]
    assert second.orders[SOURCE] > first.orders[SOURCE]
    assert "0% of the gain" in second.events[0].text


def test_with_detection_the_next_increase_is_blocked():
    bench = Bench(settings_of(scaling_effectiveness_detection_enabled=True), ALONE)
    first = skewed(bench, 4)
    second = skewed(bench, first.orders[SOURCE])
    assert second.orders == {}
    assert kinds(second) == [EventKind.INEFFECTIVE, EventKind.GROWTH_BLOCKED]


def test_one_increase_without_effect_may_be_tolerated():
    options = {
        **FLINK,
        "job.autoscaler.scaling.effectiveness.detection.enabled": True,
        "penstock.autoscaler.tolerated-ineffective-scalings": 1,
    }
    bench = Bench(autoscaler_settings_of(Settings(options)), ALONE)
    first = skewed(bench, 4)
    second = skewed(bench, first.orders[SOURCE])
    assert kinds(second) == [EventKind.INEFFECTIVE]
    third = skewed(bench, second.orders[SOURCE])
    assert third.orders == {}
    assert kinds(third) == [EventKind.INEFFECTIVE, EventKind.GROWTH_BLOCKED]


def test_the_same_event_is_told_once_in_its_interval():
    options = {"scaling_effectiveness_detection_enabled": True, "scaling_event_interval": "25 min"}
    bench = Bench(settings_of(**options), ALONE)
    grown = skewed(bench, 4).orders[SOURCE]
    told_ms = [bench.now_ms for _ in range(6) if (found := skewed(bench, grown)) and found.events]
    assert told_ms == [2 * FULL, 5 * FULL]


def test_where_a_vertex_is_blocked_those_before_it_stay_too():
    """The map does 12,000/s with any parallelism. A subtask of the source does 2,222/s, so 7 do 15,556/s; that is enough for the
    8,000/s that the map lets through, and less than the 19,111/s that 20,000,000 waiting records ask for.
    """
    options = {"scaling_effectiveness_detection_enabled": True, "vertex_exclude_ids": "sink"}
    bench = Bench(settings_of(**options))
    counts = {SOURCE: 4, MAP: 6}
    orders = []
    for lag in (1_000_000, 20_000_000, 20_000_000):
        busy_ms = 8_000 / (2_222 * counts[SOURCE]) * 1000
        source = VertexSample(
            counts[SOURCE],
            busy_ms_max=busy_ms,
            back_pressured_ms=1000 - busy_ms,
            records_in_per_second=8_000,
            pending_records=lag,
            partitions=20,
        )
        slow = VertexSample(counts[MAP], busy_ms_max=1000, records_in_per_second=12_000)
        samples = example(lag) | {SOURCE: source, MAP: slow}
        decision = bench.observe_until(bench.now_ms + FULL, samples).decide()
        orders.append(decided_orders(decision))
        counts |= orders[-1]
        bench.rescaled(counts, 1_000)
    # 13,317 of 8,889 is 1.498 times 4; of 20 partitions 7 subtasks have 2 or 3, 6 have 3 or 4.
    assert orders[0][SOURCE] == 7
    assert orders[0][MAP] > 6
    assert orders[1:] == [{}, {}]


def test_the_longest_measured_rescale_replaces_the_expected_time():
    bench = Bench(settings_of(restart_time__tracking_enabled=True))
    assert bench.autoscaler.restart_s(0) == 300
    for took_ms in (2_000, 7_000, 3_000):
        bench.rescaled({}, took_ms, 0)
    assert bench.autoscaler.restart_s(0) == 7
    bench.rescaled({}, 20 * MINUTE, 0)
    assert bench.autoscaler.restart_s(0) == 15 * 60
    assert bench.autoscaler.restart_s(25 * HOUR) == 300


def test_the_expected_time_stays_without_tracking():
    bench = Bench(settings_of())
    bench.rescaled({}, 2_000, 0)
    assert bench.autoscaler.restart_s(0) == 300
