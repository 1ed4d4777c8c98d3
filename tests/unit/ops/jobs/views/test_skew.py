"""How records are spread over subtasks and key groups."""

import json

import pytest

from penstock.ops.jobs.views.skew import MOST_ROWS, skew
from tests.tools.observation.job_records import BEGAN, SINK, SOURCE, ToldJob, attempt


def told_of(counts, vertex_id=SINK, parallelism=None):
    told = ToldJob(parallelism=parallelism or len(counts))
    for subtask, count in enumerate(counts):
        told.moves(attempt(vertex_id, subtask), "RUNNING")
        told.has(attempt(vertex_id, subtask), records_in=count)
    job = told.now_it_is(5)
    answer = skew(job, job.vertex(vertex_id))
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    return answer


def test_the_worst_subtask_and_its_key_groups():
    answer = told_of([100, 900, 100, 130])
    rows = answer.pop("subtasks")
    assert answer == {
        "now": BEGAN + 5,
        "id": SINK,
        "name": "Reduce -> Sink: <out>",
        "parallelism": 4,
        "max-parallelism": 128,
        "keyed": True,
        "records": 1230,
        "usual": 100,
        "factor": 9.0,
        "quantiles": answer["quantiles"],
        "total": 4,
        "reported": 4,
        "shown": 4,
        "why": {},
    }
    quantiles = answer["quantiles"]
    assert (quantiles["min"], quantiles["median"], quantiles["max"]) == (100, 115, 900)
    assert [one["subtask"] for one in rows] == [1, 3, 0, 2]
    assert rows[0] == {
        "subtask": 1,
        "attempt": 0,
        "running-since": BEGAN,
        "records": 900,
        "factor": 9.0,
        "key-groups": {"first": 32, "last": 63, "records-each": 28.125},
    }


def test_key_groups_are_as_flink_assigns_them():
    """128 groups on 3 subtasks: 0 to 42, 43 to 85, 86 to 127."""
    rows = sorted(told_of([1, 1, 1])["subtasks"], key=lambda one: one["subtask"])
    found = [(one["key-groups"]["first"], one["key-groups"]["last"]) for one in rows]
    assert found == [(0, 42), (43, 85), (86, 127)]


@pytest.mark.parametrize(
    ("counts", "parallelism", "why", "names"),
    [
        ([], 2, "no subtask has reported yet", {"records", "usual", "factor", "quantiles"}),
        ([5], 1, "it has one subtask only", {"usual", "factor"}),
        ([0, 0], 2, "no subtask has got records yet", {"factor"}),
    ],
)
def test_a_figure_that_is_not_known_has_a_reason(counts, parallelism, why, names):
    answer = told_of(counts, parallelism=parallelism)
    assert {name: answer[name] for name in names} == dict.fromkeys(names)
    assert answer["why"] == dict.fromkeys(names, why)


def test_a_vertex_without_keys_has_no_key_groups():
    answer = told_of([1, 2], SOURCE)
    assert (answer["keyed"], answer["subtasks"][0]["key-groups"]) == (False, None)
    assert answer["why"]["key-groups"].startswith("its input is not sent by key")


def test_of_many_subtasks_the_worst_are_told():
    answer = told_of(list(range(MOST_ROWS + 20)))
    assert (answer["total"], answer["shown"], answer["records"]) == (220, 200, 24_090)
    assert answer["subtasks"][-1]["records"] == 20
