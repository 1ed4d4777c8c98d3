"""Parallelism by bytes: docs/spec/scheduling.md#parallelism-by-bytes, and the defaults of
docs/spec/options.md#scheduler.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.compiler.job_graph_builder import build_job_graph
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError, GraphError
from penstock.engine.model.graph.auto_parallelism import (
    UNDECIDED,
    AutoParallelism,
    auto_parallelism_of,
    cut,
    decided,
)
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.model.graph.stream_graph import StreamEdge, StreamGraph, StreamNode
from penstock.engine.model.ids import JobId

MIB = 1 << 20
PREFIX = "execution.batch.adaptive.auto-parallelism"
AUTO = AutoParallelism(1, 128, 16 * MIB, 3)
FORWARD = Partitioning(ShipStrategy.FORWARD)
SPREAD = Partitioning(ShipStrategy.REBALANCE)


def settings(**values):
    return Settings({f"{PREFIX}.{name.replace('_', '-')}": value for name, value in values.items()})


def test_the_options_defaults_are_flinks():
    assert auto_parallelism_of(Settings({}), 4) == AutoParallelism(1, 128, 16 * MIB, 4)


def test_every_option_counts():
    given_all = settings(
        min_parallelism="2",
        max_parallelism="8",
        avg_data_volume_per_task="1 mb",
        default_source_parallelism="5",
    )
    assert auto_parallelism_of(given_all, 64) == AutoParallelism(2, 8, MIB, 5)
    assert auto_parallelism_of(settings(max_parallelism="8"), 64).source_parallelism == 8


@pytest.mark.parametrize(
    "found", [settings(enabled="false"), Settings({"parallelism.default": "2"})]
)
def test_a_parallelism_for_all_or_the_switch_turns_it_off(found):
    assert auto_parallelism_of(found, 4) is None


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"min_parallelism": "9", "max_parallelism": "8"}, "min-parallelism' is 9, more than"),
        ({"max_parallelism": "0"}, "max-parallelism' is '0'"),
        ({"default_source_parallelism": "40000"}, "at least 1 and at most 32,768"),
        ({"avg_data_volume_per_task": "0 b"}, "at least 1 bytes"),
    ],
)
def test_what_cannot_be_is_refused(values, told):
    with pytest.raises(ConfigurationError, match=told):
        auto_parallelism_of(settings(**values), 4)


@pytest.mark.parametrize(
    ("read_bytes", "most", "expected"),
    [(0, 128, 1), (16 * MIB, 128, 1), (16 * MIB + 1, 128, 2), (1 << 40, 128, 128), (1 << 40, 7, 7)],
)
def test_a_subtask_for_each_started_volume_within_the_limits(read_bytes, most, expected):
    assert decided(AUTO, read_bytes, most) == expected


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.data())
def test_ranges_follow_each_other_and_no_other_cut_has_a_smaller_largest_one(sizes, data):
    count = data.draw(st.integers(1, len(sizes)))
    ranges = cut(sizes, count)
    assert len(ranges) == count
    assert [one for start, stop in ranges for one in range(start, stop)] == list(range(len(sizes)))
    assert all(start < stop for start, stop in ranges)
    largest = max(sum(sizes[start:stop]) for start, stop in ranges)
    assert largest == least_largest(sizes, count)


def least_largest(sizes, count):
    """By dynamic programming over all cuts."""
    best = [sum(sizes[: stop + 1]) for stop in range(len(sizes))]
    for _ in range(1, count):
        best = [
            min([best[stop], *(max(best[at], sum(sizes[at + 1 : stop + 1])) for at in range(stop))])
            for stop in range(len(sizes))
        ]
    return best[-1]


def graph_of(parallelisms, edges, sources=(0,)):
    graph = StreamGraph(is_batch=True, auto_parallelism=AUTO)
    for node_id, parallelism in enumerate(parallelisms):
        graph.nodes[node_id] = StreamNode(
            node_id, f"n{node_id}", object(), parallelism=parallelism, is_source=node_id in sources
        )
    graph.edges = [StreamEdge(source, target, how) for source, target, how in edges]
    job_graph = build_job_graph(graph, JobId("0" * 32), lambda spec: repr(spec).encode())
    found = {}
    for vertex in job_graph.vertices.values():
        for operator in vertex.operators:
            found[operator.node_id] = vertex
    return found


def test_sources_have_theirs_and_what_is_chained_to_them():
    found = graph_of([-1, -1, -1], [(0, 1, None), (1, 2, SPREAD)])
    assert found[0] is found[1]
    assert (found[0].parallelism, found[2].parallelism) == (3, UNDECIDED)


def test_an_open_vertex_has_as_many_key_groups_as_it_may_have_subtasks():
    found = graph_of([2, -1], [(0, 1, None)])
    assert found[1].inputs[0].ship_strategy is ShipStrategy.REBALANCE
    assert (found[1].parallelism, found[1].max_parallelism) == (UNDECIDED, 128)


def test_forward_joins_with_whoever_sets_a_parallelism():
    found = graph_of([2, -1, -1], [(0, 1, FORWARD), (1, 2, None)])
    assert {vertex.parallelism for vertex in found.values()} == {2}


def test_forward_between_two_that_differ_is_refused_all_the_same():
    with pytest.raises(GraphError, match=r"forward\(\) needs equal parallelism"):
        graph_of([2, -1, 4], [(0, 1, FORWARD), (1, 2, FORWARD)])
