"""What `penstock top` makes of answers: rates of two looks, lags, and what is not known."""

import pytest

from penstock.ops.cli.top.facts import checkpoint_row, counters_of, lag_of, vertex_rows, with_shares

VERTEX = "1" * 32


def details(now, records_in=0, records_out=0, busy=0, blocked=0):
    metrics = {
        "read-records": records_in,
        "write-records": records_out,
        "accumulated-busy-time": busy,
        "accumulated-backpressured-time": blocked,
    }
    vertex = {
        "id": VERTEX,
        "name": "Map",
        "parallelism": 2,
        "tasks": {"RUNNING": 2, "FAILED": 0},
        "metrics": metrics,
    }
    return {"now": now, "vertices": [vertex]}


def test_the_first_look_has_no_rates():
    (row,) = vertex_rows(details(1000, 50), {})
    assert (row.name, row.states) == ("Map", "2 RUNNING")
    assert (row.in_per_s, row.out_per_s, row.busy, row.blocked) == (None,) * 4


def test_rates_are_those_between_two_looks_and_shares_those_of_one_subtask():
    before = counters_of(details(1000, 50, 10, 500, 100))
    (row,) = vertex_rows(details(3000, 150, 30, 2500, 500), before)
    assert (row.in_per_s, row.out_per_s) == (50, 10)
    assert (row.busy, row.blocked) == (0.5, 0.1)


def test_counters_that_begin_again_are_no_negative_rates():
    before = counters_of(details(1000, 500, 500, 5000, 5000))
    (row,) = vertex_rows(details(2000, 1, 1, 1, 1), before)
    assert (row.in_per_s, row.out_per_s, row.busy, row.blocked) == (0, 0, 0, 0)


def test_two_looks_at_the_same_moment_tell_nothing():
    (row,) = vertex_rows(details(1000, 5), counters_of(details(1000)))
    assert row.in_per_s is None


def test_shares_of_the_verdict_take_the_place_of_ours():
    rows = vertex_rows(details(1000), {})
    told = {"vertices": {VERTEX: {"busy": 0.7, "back-pressured": 0.2}}}
    (row,) = with_shares(rows, told)
    assert (row.busy, row.blocked) == (0.7, 0.2)
    assert with_shares(rows, {"vertices": {}}) == rows


@pytest.mark.parametrize(
    ("values", "lag"),
    [
        ([], None),
        (["700", "900"], 300),
        (["700", str(-(2**63))], None),
        ([str(2**63 - 1)], None),
        (["1200"], -200),
    ],
)
def test_the_lowest_watermark_counts(values, lag):
    told = [{"id": f"{i}.currentInputWatermark", "value": one} for i, one in enumerate(values)]
    assert lag_of(told, 1000) == lag


def test_the_newest_completed_checkpoint_is_told():
    newest = {"id": 7, "end_to_end_duration": 30, "state_size": 99, "trigger_timestamp": 400}
    told = {"latest": {"completed": newest}, "counts": {"failed": 2}}
    row = checkpoint_row(told, 1000)
    assert (row.checkpoint_id, row.took_ms, row.state_bytes, row.age_ms, row.failed) == (
        7, 30, 99, 600, 2,
    )  # fmt: skip
    assert checkpoint_row({"latest": {"completed": None}, "counts": {"failed": 0}}, 0) is None
