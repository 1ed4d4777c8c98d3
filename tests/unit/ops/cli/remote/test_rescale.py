"""What `penstock rescale` asks for."""

import pytest

from penstock.engine.model.elastic import ParallelismBounds
from penstock.ops.cli.remote.commands import wanted_parallelism
from penstock.ops.remote.client import RemoteError, requirements_with

JOB = {"vertices": [{"id": "1" * 32, "name": "Source"}, {"id": "2" * 32, "name": "Sum"}]}
SOURCE, SUM = "1" * 32, "2" * 32


def test_a_number_is_for_all_vertices_and_a_later_wish_wins():
    assert wanted_parallelism(JOB, ["4"]) == {SOURCE: 4, SUM: 4}
    assert wanted_parallelism(JOB, ["4", "Sum=2"]) == {SOURCE: 4, SUM: 2}
    assert wanted_parallelism(JOB, ["Sum=2..8"]) == {SUM: (2, 8)}


def test_all_vertices_are_sent_and_a_lower_bound_never_exceeds_the_upper_one():
    bounds = ParallelismBounds(3, 8)
    asked = requirements_with(JOB, {SOURCE: bounds, SUM: bounds}, {SUM: 2})
    assert asked == {SOURCE: bounds, SUM: ParallelismBounds(2, 2)}


@pytest.mark.parametrize(
    "wish", ["0", "-1", "many", "=2", "Sum=", "Sum=0", "Sum=0..2", "Sum=1..", "Nobody=2"]
)
def test_what_is_no_parallelism_or_no_vertex_is_named(wish):
    with pytest.raises(RemoteError, match=wish.partition("=")[0] or "=2"):
        wanted_parallelism(JOB, [wish])
