"""What may be asked for a job. Expectations: docs/spec/elasticity.md#requirements."""

import json

import pytest

from penstock.engine.machines.rescaling.requirements import (
    changed_vertices,
    check_requirements,
    default_requirements,
)
from penstock.engine.model.elastic import ParallelismBounds as Bounds
from penstock.engine.model.elastic import (
    requirements_from_plain,
    requirements_to_plain,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.job_graph import JobVertex

SOURCE = JobVertex("a" * 32, "Source", 4, 8)
SINK = JobVertex("b" * 32, "Sink", 2, 128)
JOB = [SOURCE, SINK]


def findings(asked):
    return check_requirements(asked, JOB).findings


def test_bounds_unless_asked_otherwise():
    assert default_requirements(JOB) == {"a" * 32: Bounds(1, 4), "b" * 32: Bounds(1, 2)}


def test_in_reactive_mode_a_job_takes_up_to_its_max_parallelism():
    found = default_requirements(JOB, is_reactive=True)
    assert found == {"a" * 32: Bounds(1, 8), "b" * 32: Bounds(1, 128)}


def test_vertices_are_named_by_id_or_by_name():
    checked = check_requirements({"Sink": Bounds(2, 5), "A" * 32: Bounds(1, 8)}, JOB)
    assert checked.findings == ()
    assert list(checked.requirements.items()) == [
        ("a" * 32, Bounds(1, 8)),
        ("b" * 32, Bounds(2, 5)),
    ]


def test_open_bounds_are_resolved_before_anything_is_stored():
    checked = check_requirements({"Source": Bounds(-1, -1), "Sink": Bounds(3, -1)}, JOB)
    assert checked.requirements == {"a" * 32: Bounds(1, 8), "b" * 32: Bounds(3, 128)}


def test_no_requirements_at_all():
    (one,) = findings({})
    assert "no requirements are given" in one


def test_everything_that_is_wrong_is_told_at_once():
    asked = {"Source": Bounds(5, 3), "Map": Bounds(1, 1)}
    found = findings(asked)
    assert len(found) == 3
    assert "there is no vertex 'Map'" in found[0]
    assert "lower bound 5" in found[1]
    assert "above its upper bound 3" in found[1]
    assert "'Sink'" in found[2]
    assert "has no bounds" in found[2]
    assert check_requirements(asked, JOB).requirements == {}


@pytest.mark.parametrize("bad", [0, -2])
def test_after_a_bound_below_1_nothing_more_is_looked_at_for_the_vertex(bad):
    (one,) = findings({"Source": Bounds(bad, 9), "Sink": Bounds(1, 1)})
    assert f"is {bad}" in one
    assert "'Source'" in one


def test_the_max_parallelism_cannot_be_exceeded():
    (one,) = findings({"Source": Bounds(1, 9), "Sink": Bounds(1, 128)})
    assert "upper bound 9" in one
    assert "at most 8" in one


def test_an_open_upper_bound_may_be_below_the_lower_one():
    (one,) = findings({"Source": Bounds(9, -1), "Sink": Bounds(1, 1)})
    assert "lower bound 9" in one


def test_both_checks_of_one_vertex_are_told():
    assert len(findings({"Source": Bounds(20, 10), "Sink": Bounds(1, 1)})) == 2


def test_a_vertex_that_is_given_twice_is_refused():
    (one,) = findings({"a" * 32: Bounds(1, 1), "Source": Bounds(1, 1), "Sink": Bounds(1, 1)})
    assert "twice" in one


def test_a_name_that_several_vertices_have_is_refused():
    twins = [SOURCE, JobVertex("c" * 32, "Source", 1, 128)]
    found = check_requirements({"Source": Bounds(1, 1)}, twins).findings
    assert "2 vertices are called 'Source'" in found[0]
    by_id = {"a" * 32: Bounds(1, 1), "c" * 32: Bounds(1, 1)}
    assert check_requirements(by_id, twins).findings == ()


def test_the_same_as_before_changes_nothing():
    before = default_requirements(JOB)
    assert changed_vertices(before, dict(reversed(before.items()))) == ()
    assert changed_vertices(before, before | {SINK.vertex_id: Bounds(1, 3)}) == (SINK.vertex_id,)


def test_requirements_are_stored_in_the_form_of_flinks_rest_api():
    plain = requirements_to_plain(default_requirements(JOB))
    assert plain["a" * 32] == {"parallelism": {"lowerBound": 1, "upperBound": 4}}
    assert requirements_from_plain(json.loads(json.dumps(plain))) == default_requirements(JOB)


def test_a_bound_that_is_missing_is_open():
    assert requirements_from_plain({"Sink": {"parallelism": {"upperBound": 3}}}) == {
        "Sink": Bounds(-1, 3)
    }


@pytest.mark.parametrize(
    ("plain", "where"),
    [
        ([], "resource requirements"),
        ({"Sink": 3}, "vertex 'Sink'"),
        ({"Sink": {"parallelism": 3}}, "vertex 'Sink'"),
        ({"Sink": {"parallelism": {"lowerBound": "1"}}}, "lowerBound of vertex 'Sink'"),
        ({"Sink": {"parallelism": {"upperBound": True}}}, "upperBound of vertex 'Sink'"),
    ],
)
def test_another_form_is_refused_with_its_place(plain, where):
    with pytest.raises(ConfigurationError, match=where):
        requirements_from_plain(plain)
