"""Rates through the graph, capacity, bounds. Source: docs/spec/autoscaler.md#evaluation, #where-penstock-differs."""

import math

import pytest

from penstock.engine.model.ids import VertexId
from penstock.ops.autoscaler.rules.evaluation import (
    Measured,
    capacity,
    evaluate,
    limited,
    wanted_rates,
)
from penstock.ops.autoscaler.rules.samples import (
    JobSample,
    VertexSample,
)
from penstock.ops.autoscaler.rules.settings import CapacitySettings, WindowSettings
from tests.tools.machines.topologies import topology_of

FLINK = CapacitySettings(catch_up_s=1800, restart_s=300, utilization_max=1.0, utilization_min=0.4)


def graph(*edges):
    names = dict.fromkeys(end for edge in edges for end in edge.split(">"))
    return topology_of(names, [edge.split(">") for edge in edges])


def rates(topology, settings=FLINK, **of):
    """`of`: in rate, out rate, and of sources lag and its growth."""
    found = {
        VertexId(name): Measured(1, 500, 0, one[0], one[1], *one[2:]) for name, one in of.items()
    }
    return wanted_rates(found, topology, settings)


@pytest.mark.parametrize(
    ("utilization", "restart_s", "expected"),
    [
        (0.7, 300, 16_452),
        (1.0, 0, 10_500),
        (0.4, 300, 27_167),
        (0.7, 2, 14_797),
        (0.0, 0, math.inf),
        (-0.1, 0, math.inf),
        (1.3, 0, 10_500),
    ],
)
def test_capacity_of_the_example(utilization, restart_s, expected):
    assert capacity(10_000, 500, utilization, FLINK, restart_s) == expected


def test_capacity_with_a_short_catch_up_and_without_any():
    short = CapacitySettings(catch_up_s=60)
    assert capacity(10_000, 15_000, 0.7, short, 2) == 29_619
    assert capacity(10_000, 0, 0.7, CapacitySettings(catch_up_s=0), 300) == 14_286


def test_capacity_is_rounded_half_up():
    assert capacity(2.5, 0, 1, FLINK) == 3


def test_a_source_gets_what_arrives_and_a_share_of_what_waits():
    found = rates(graph("s>t"), s=(100, 100, 3_600, 20), t=(100, 0))
    assert found["s"] == (120, 2)
    assert rates(graph("s>t"), s=(100, 100, 0, -150), t=(100, 0))["s"] == (0, 0)
    no_catch_up = CapacitySettings(catch_up_s=0)
    assert rates(graph("s>t"), no_catch_up, s=(100, 100, 3_600, 20), t=(100, 0))["s"] == (120, 0)


def test_rates_are_carried_by_the_ratio_of_each_edge():
    """Each record of s makes 3 for t, and half a record for u."""
    found = rates(graph("s>t", "t>u"), s=(100, 300, 3_600, 20), t=(300, 50), u=(50, 0))
    assert found["t"] == (360, 6)
    assert found["u"] == pytest.approx((60, 1))


def test_of_two_inputs_each_brings_the_rest_of_the_other():
    found = rates(graph("a>t", "b>t"), a=(100, 90, 0, 100), b=(200, 40), t=(140, 0))
    # a: (140 - 40) / 100 for each of 200. b: (140 - 90) / 200 for each of 200.
    assert found["t"][0] == pytest.approx(200 * 1.0 + 200 * 0.25)


def test_where_another_input_sends_elsewhere_too_the_own_output_counts():
    topology = graph("a>t", "b>t", "b>u")
    found = rates(topology, a=(100, 90), b=(200, 40), t=(140, 0), u=(40, 0))
    # a: 90 / 100, because what b sends to t is not known. b: (140 - 90) / 200.
    assert found["t"][0] == pytest.approx(100 * 0.9 + 200 * 0.25)


def test_an_input_without_records_brings_none():
    assert rates(graph("s>t"), s=(0, 0, 0, 50), t=(0, 0)) == {"s": (50, 0), "t": (0, 0)}


def test_a_vertex_below_one_of_unknown_rate_is_left_out():
    found = rates(graph("s>t", "t>u"), s=(100, 100), t=(None, 100), u=(100, 0))
    assert list(found) == ["s"]


def evaluated(topology, lag=0.0, **of):
    """`of`: in rate, out rate, busy ms."""
    samples = {
        VertexId(name): VertexSample(
            4,
            busy_ms_max=busy,
            records_in_per_second=in_rate,
            records_out_per_second=out_rate,
            pending_records=lag if topology.is_source(VertexId(name)) else None,
        )
        for name, (in_rate, out_rate, busy) in of.items()
    }
    window = [JobSample(time_ms, samples) for time_ms in (0, 60_000)]
    return evaluate(window, topology, WindowSettings(), FLINK, 300)


@pytest.mark.parametrize(("lag", "is_backlog"), [(30_000, False), (30_001, True)])
def test_with_a_backlog_only_what_cannot_follow_is_outside(lag, is_backlog):
    """5 min of 100/s. The target needs 100 of 100,000/s."""
    found = evaluated(graph("s>t"), lag, s=(100, 100, 500), t=(100, 0, 1))
    assert found.is_backlog == is_backlog
    assert found.vertices["t"].is_outside == (not is_backlog)
    assert math.isinf(found.vertices["t"].down_bound) == is_backlog


def test_a_source_that_reads_nothing_of_what_waits_has_a_backlog():
    assert evaluated(graph("s>t"), 1, s=(0, 0, 0), t=(0, 0, 0)).is_backlog
    assert not evaluated(graph("s>t"), 0, s=(0, 0, 0), t=(0, 0, 0)).is_backlog


def test_beside_a_blocked_vertex_only_what_it_can_do_is_asked_for():
    """`slow` does 100 of 200 that arrive. So its input, and what that sends to, get half. The other source and its sink do not."""
    topology = graph("s>slow", "s>side", "o>p")
    of = {"s": (100, 100, 500), "slow": (100, 0, 1000), "side": (100, 0, 500)}
    found = evaluated(topology, **of, o=(100, 100, 500), p=(100, 0, 500))
    wanting = {
        **found.vertices,
        **{
            name: type(one)(one.vertex_id, one.measured, one.true_rate, False, 200, 50, 0, 0, 0)
            for name, one in found.vertices.items()
        },
    }
    raised = type(found)(found.time_ms, wanting, found.is_backlog, found.restart_s)
    asked = limited(raised, ["slow"], topology, FLINK).vertices
    rates_of = {name: (one.target_rate, one.catch_up_rate) for name, one in asked.items()}
    assert rates_of == {
        "s": (100, 0), "side": (100, 0), "slow": (200, 50), "o": (200, 50), "p": (200, 50)
    }  # fmt: skip
    assert asked["s"].capacity == capacity(100, 0, 0.7, FLINK, 300)
