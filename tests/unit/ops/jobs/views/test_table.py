"""The subtasks of a vertex as pages of a table."""

import json

import pytest

from penstock.engine.model.ids import taskmanager_name
from penstock.engine.model.states import ExecutionState
from penstock.ops.jobs.views.table import MOST_ROWS, NAMES, Table
from tests.tools.observation.job_records import BEGAN, JOB, PLACE, SINK, ToldJob, attempt


def page(told, states=(), **asked):
    job = told.now_it_is()
    table = Table(job, job.vertex(SINK), frozenset(map(ExecutionState, states)))
    for _ in table.measure():
        pass
    query = {"offset": 0, "limit": 50, "sort": "subtask", "is_descending": False} | asked
    answer = table.page(**query)
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    return answer


def subtasks(answer):
    return [one["subtask"] for one in answer["subtasks"]]


def busy(*shares):
    told = ToldJob(parallelism=len(shares)).status("RUNNING").runs(parallelism=len(shares))
    for subtask, share in enumerate(shares):
        if share is not None:
            told.has(attempt(SINK, subtask), busy_ms_per_s=1000.0 * share)
    return told


def test_a_row():
    told = ToldJob().status("RUNNING").runs(vertices=[SINK]).triggers(1)
    told.acknowledges(1, attempt(SINK, 1)).ends(1)
    told.now_it_is(2_000)
    told.has(
        attempt(SINK, 1),
        records_in=30,
        records_out=6,
        bytes_in=101,
        bytes_out=50,
        records_in_per_s=10.0,
        records_out_per_s=0.5,
        bytes_in_per_s=0.5,
        busy_ms_per_s=250.0,
        backpressured_ms_per_s=500.0,
        idle_ms_per_s=250.0,
        buffers_in=3,
        buffers_out=4,
        mails=5,
        watermark_ms=BEGAN,
        late_records_dropped=6,
    )
    answer = page(told)
    _, row = answer.pop("subtasks")
    quantiles = answer.pop("quantiles")
    assert answer == {
        "now": BEGAN + 2_000,
        "id": SINK,
        "name": "Reduce -> Sink: <out>",
        "subtasks-total": 2,
        "total": 2,
        "offset": 0,
        "shown": 2,
        "sort": "subtask",
        "order": "asc",
    }
    assert row == {
        "subtask": 1,
        "attempt": 0,
        "state": "RUNNING",
        "endpoint": "host-a:5001",
        "taskmanager-id": taskmanager_name(JOB, PLACE.resource_id),
        "slot": "slot-1",
        "records-in": 10.0,
        "records-out": 0.5,
        "bytes-in": 0.5,
        "bytes-out": 0.0,
        "busy": 0.25,
        "back-pressured": 0.5,
        "idle": 0.25,
        "queued-in": 3,
        "queued-out": 4,
        "mails": 5,
        "watermark-lag": 2_000,
        "state-bytes": 0,
        "records-in-total": 30,
        "records-out-total": 6,
        "late-records-dropped": 6,
        "start-time": BEGAN,
        "duration": 2_000,
        "attempts": 1,
        "state-durations": {
            "CREATED": 0,
            "SCHEDULED": 0,
            "DEPLOYING": 0,
            "INITIALIZING": 0,
            "RUNNING": 2_000,
        },
    }
    assert tuple(quantiles) == NAMES
    assert quantiles["records-in"] == {"min": 10.0, "median": 10.0, "max": 10.0}
    assert quantiles["attempts"] == {"min": 1, "median": 1.0, "max": 1}


def test_what_has_not_been_reported_is_not_known():
    answer = page(ToldJob())
    (row, _) = answer["subtasks"]
    assert {row[name] for name in NAMES} == {None, 1}
    assert (row["endpoint"], row["slot"], row["attempts"]) == (None, None, 1)
    assert row["state-durations"]["RUNNING"] is None
    assert answer["quantiles"]["busy"] is None


def test_an_attempt_that_has_ended_has_its_counters_and_no_shares():
    told = busy(0.5, 0.5)
    told.has(attempt(SINK), records_in=9).moves(attempt(SINK), "FINISHED", after_ms=10)
    (row, _) = page(told)["subtasks"]
    assert (row["busy"], row["records-in-total"], row["duration"]) == (None, 9, 10)


def test_the_next_attempt_has_nothing_of_the_one_before():
    told = busy(0.5, 0.5)
    told.now_it_is(1_000)
    told.moves(attempt(SINK, 0, 1), "RUNNING").has(attempt(SINK, 0, 1), records_in=5)
    (row, _) = page(told)["subtasks"]
    assert (row["attempt"], row["attempts"], row["busy"], row["records-in-total"]) == (1, 2, 0.0, 5)


@pytest.mark.parametrize(
    ("sort", "is_descending", "order"),
    [
        ("busy", True, [1, 0, 3, 2]),
        ("busy", False, [3, 0, 1, 2]),
        ("subtask", True, [3, 2, 1, 0]),
        ("state", False, [2, 0, 1, 3]),
    ],
)
def test_rows_in_an_order_with_unknown_ones_last(sort, is_descending, order):
    told = busy(0.5, 0.9, None, 0.1).moves(attempt(SINK, 2), "FAILED")
    assert subtasks(page(told, sort=sort, is_descending=is_descending)) == order


def test_pages():
    told = busy(*[subtask / 100 for subtask in range(7)])
    first = page(told, sort="busy", is_descending=True, limit=3)
    assert (subtasks(first), first["total"], first["shown"]) == ([6, 5, 4], 7, 3)
    last = page(told, sort="busy", is_descending=True, limit=3, offset=6)
    assert (subtasks(last), last["offset"]) == ([0], 6)
    assert first["quantiles"] == last["quantiles"]
    assert first["quantiles"]["busy"] == {"min": 0.0, "median": 0.03, "max": 0.06}


def test_only_subtasks_in_some_states():
    told = busy(0.1, 0.2, 0.3).moves(attempt(SINK, 1), "FAILED")
    answer = page(told, states=["RUNNING"])
    assert (subtasks(answer), answer["total"], answer["subtasks-total"]) == ([0, 2], 2, 3)
    assert answer["quantiles"]["busy"]["min"] == 0.1
    assert page(told, states=["FINISHED"])["quantiles"]["busy"] is None


def test_a_page_has_no_more_rows_than_there_may_be():
    told = ToldJob(parallelism=MOST_ROWS + 10)
    answer = page(told, limit=1_000)
    assert (answer["total"], answer["shown"]) == (MOST_ROWS + 10, MOST_ROWS)


def test_a_caller_can_do_something_else_between_subtasks():
    job = ToldJob(parallelism=1_000).now_it_is()
    assert len(list(Table(job, job.vertex(SINK)).measure())) == 5


def test_a_vertex_without_subtasks():
    answer = page(ToldJob(parallelism=-1))
    assert (answer["total"], answer["subtasks"]) == (0, [])
    assert set(answer["quantiles"].values()) == {None}
