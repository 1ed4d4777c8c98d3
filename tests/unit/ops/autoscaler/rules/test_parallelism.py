"""From capacity to a parallelism. Source: docs/spec/autoscaler.md#parallelism, #alignment, #where-penstock-differs."""

import math

import pytest

from penstock.engine.model.ids import VertexId
from penstock.ops.autoscaler.rules.evaluation import Evaluated, Measured, align, propose
from penstock.ops.autoscaler.rules.settings import AlignmentMode, StepSettings
from tests.tools.machines.topologies import topology_of

V, OTHER = VertexId("v"), VertexId("other")
FLINK = StepSettings(up_max=100_000, max_added=math.inf, is_at_most_partitions=False)


def proposed(
    now, factor, settings=FLINK, *, partitions=None, most=128, is_hash=False, scalability=1.0
):
    topology = topology_of([V, OTHER], [(OTHER, V, True)] if is_hash else [], most)
    measured = Measured(now, 500, 0, 1000, 1000, partitions=partitions)
    one = Evaluated(V, measured, 1000.0, False, 0, 0, 1000.0 * factor, 0, 0)
    return propose(one, topology, settings, scalability)


@pytest.mark.parametrize(
    ("now", "factor", "expected"),
    [(4, 1.0, 4), (4, 1.954, 8), (6, 1.275, 8), (2, 0.206, 1), (10, 0.1, 4), (3, 1.01, 4)],
)
def test_the_factor_is_limited_and_the_result_rounded_up(now, factor, expected):
    assert proposed(now, factor).parallelism == expected


def test_how_far_a_step_goes_is_limited():
    settings = StepSettings(up_max=1.0, down_max=0.5)
    assert proposed(5, 30, settings).parallelism == 10
    assert proposed(5, 0.01, settings).parallelism == 3


def test_limits_of_the_settings_hold_but_change_nothing_by_themselves():
    settings = StepSettings(min_parallelism=4, max_parallelism=10, up_max=100)
    assert proposed(5, 0.4, settings).parallelism == 4
    assert proposed(5, 10, settings).parallelism == 10
    assert proposed(2, 0.4, settings).parallelism == 2, "below the minimum it may stay"
    assert proposed(20, 10, settings).parallelism == 20, "above the maximum it may stay"


def test_there_are_no_more_subtasks_than_key_groups():
    assert proposed(5, 10, most=12).parallelism == 12


def test_a_rounding_error_is_no_subtask():
    assert proposed(3, 1.1 * 10 / 11 + 1e-15).parallelism == 3


def test_less_scalability_takes_more_subtasks():
    assert proposed(4, 1.5, scalability=0.75).parallelism == 8


def test_a_vertex_without_records_shrinks_by_a_step():
    measured = Measured(10, 0, 0, 0, 0)
    one = Evaluated(V, measured, math.inf, False, 0, 0, 0, 0, 0)
    assert propose(one, topology_of([V]), FLINK).parallelism == 4


@pytest.mark.parametrize(
    ("wanted", "shares", "limit", "balanced", "even"),
    [
        (8, 20, 20, 10, 10),
        (8, 128, 128, 8, 8),
        (7, 12, 12, 12, 12),
        (7, 20, 20, 10, 10),
        (11, 20, 20, 20, 20),
        (21, 64, 64, 22, 32),  # 3 each and 1 left over; 22 have 2 or 3
        (70, 128, 128, 128, 128),
        (70, 128, 100, 70, 70),
        (15, 12, 12, 15, 15),
        (9, 128, 13, 10, 9),
    ],
)
def test_alignment(wanted, shares, limit, balanced, even):
    assert align(wanted, shares, limit, FLINK) == balanced
    evenly = StepSettings(alignment=AlignmentMode.EVENLY_SPREAD, max_added=math.inf)
    assert align(wanted, shares, limit, evenly) == even
    off = StepSettings(alignment=AlignmentMode.OFF, max_added=math.inf)
    assert align(wanted, shares, limit, off) == wanted


def test_an_alignment_that_adds_too_much_is_not_made():
    quarter = StepSettings(max_added=0.25)
    assert align(8, 20, 20, quarter) == 8, "10 is a quarter more"
    assert align(9, 20, 20, quarter) == 10, "and here a ninth"
    assert align(7, 12, 12, quarter) == 7


def test_only_partitions_and_key_groups_are_aligned_to():
    assert proposed(4, 1.7).parallelism == 7
    assert proposed(4, 1.7, partitions=20).parallelism == 10
    assert proposed(4, 1.7, is_hash=True, most=16).parallelism == 8


def test_on_the_way_down_the_alignment_stops_at_the_present_parallelism():
    """7 of 12 partitions would be 12."""
    found = proposed(11, 0.6, partitions=12)
    assert (found.wanted, found.parallelism) == (7, 7)
    assert proposed(12, 0.55, partitions=12).parallelism == 12


def test_a_source_may_be_held_to_its_partitions():
    held = StepSettings(up_max=100, is_at_most_partitions=True)
    assert proposed(4, 10, held, partitions=12).parallelism == 12
    assert proposed(16, 1.0, held, partitions=12).parallelism == 12
    assert proposed(4, 10, FLINK, partitions=12).parallelism == 40
