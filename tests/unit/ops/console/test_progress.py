"""Rates, lags and checkpoints in words, and as a table that fits its window."""

import io
import re

import pytest
from rich.console import Console

from penstock.engine.model.messages import CheckpointFailureReason
from penstock.ops.console.live_view import JobTable
from penstock.ops.console.progress import line_of, snapshot_of
from tests.tools.observation.job_records import BEGAN, SINK, SOURCE, ToldJob, attempt

FIGURES = ["in/s", "out/s", "busy", "back-pressured", "watermark lag"]


def test_the_newest_completed_checkpoint_is_told_with_its_age():
    job = ToldJob().status("RUNNING").runs()
    assert job_snapshot(job).checkpoint == ""
    job.triggers(6)
    assert job_snapshot(job).checkpoint == "checkpoint under way"
    job.ends(6, location=None, reason=CheckpointFailureReason.IO_EXCEPTION)
    assert job_snapshot(job).checkpoint == ""
    job.triggers(7).acknowledges(7, attempt(SOURCE), 1_500).ends(7)
    job.now_it_is(60_000)
    assert job_snapshot(job).checkpoint == "checkpoint 7 took 1.5 s (0 B) 1 min ago"
    job.triggers(8, "SAVEPOINT").acknowledges(8, attempt(SOURCE), 40).ends(8, "SAVEPOINT")
    job.triggers(9).triggers(10)
    told = job_snapshot(job).checkpoint
    assert told == "savepoint 8 took 40 ms (0 B) 0 ms ago, 2 checkpoints under way"


def job_snapshot(told):
    return snapshot_of(told.now_it_is())


def snapshot():
    told = ToldJob().status("RUNNING").runs()
    lag_ms = 12_000
    told.has(attempt(SOURCE, 0), records_out=2_000, records_out_per_s=900.0, busy_ms_per_s=950.0)
    told.has(attempt(SOURCE, 1), records_out=1_000, records_out_per_s=600.0)
    for subtask in (0, 1):
        told.has(
            attempt(SINK, subtask), records_in=1_000, records_in_per_s=500.0,
            backpressured_ms_per_s=250.0 * subtask, watermark_ms=BEGAN + 2_000 - lag_ms,
        )  # fmt: skip
    told.triggers(1)
    return snapshot_of(told.now_it_is(2_000 - (told.now - BEGAN)))


def test_a_line_tells_all_that_is_known():
    assert line_of(snapshot()) == (
        "job 'job': 2 s, RUNNING, 2,500 records/s, checkpoint under way | "
        "Source: Numbers -> Map: 2 RUNNING, in 0 (0/s), out 3,000 (1,500/s), "
        "busy 95%, back-pressured 0% | "
        "Reduce -> Sink: <out>: 2 RUNNING, in 2,000 (1,000/s), out 0 (0/s), "
        "busy 0%, back-pressured 25%, watermark lag 12.0 s"
    )


def test_a_subtask_that_has_ended_has_no_rate_and_no_share():
    told = ToldJob().status("RUNNING").runs()
    for subtask in (0, 1):
        figures = {"records_in_per_s": 10.0 + subtask, "busy_ms_per_s": 900.0 * subtask}
        told.has(attempt(SINK, subtask), records_in=70, **figures)
    told.moves(attempt(SINK, 1), "CANCELED")
    row = job_snapshot(told).rows[1]
    assert (row.records_in, row.in_per_s, row.busy) == (140, 10.0, 0.0)


def lines_of(columns, **options):
    shown = io.StringIO()
    console = Console(file=shown, width=columns, **options)
    console.print(JobTable(snapshot()))
    return shown.getvalue().splitlines()


def words(line):
    return [word.strip() for word in line.split("  ") if word.strip()]


def test_a_wide_table_has_all_columns():
    head, titles, source, sink = lines_of(120)
    assert head == "job: 2 s, RUNNING, 2,500 records/s, checkpoint under way"
    assert words(titles) == ["vertex", "subtasks", *FIGURES]
    assert words(source) == ["Source: Numbers -> Map", "2 RUNNING", "0", "1,500", "95%", "0%", "-"]
    figures = ["1,000", "0", "0%", "25%", "12.0 s"]
    assert words(sink) == ["Reduce -> Sink: <out>", "2 RUNNING", *figures]


def test_a_narrow_table_has_the_columns_that_fit():
    assert words(lines_of(80)[1]) == ["vertex", *FIGURES]
    assert words(lines_of(60)[1]) == ["vertex", "records/s", "busy", "watermark lag"]
    narrow = lines_of(30)
    assert words(narrow[1]) == ["vertex", "records/s", "busy"]
    assert words(narrow[3])[1:] == ["1,000", "0%"]


@pytest.mark.parametrize("columns", range(20, 200, 7))
def test_no_line_is_wider_than_the_window(columns):
    lines = lines_of(columns)
    assert len(lines) == 4
    assert max(map(len, lines)) <= columns


def test_what_hinders_a_job_is_coloured():
    colours = {"force_terminal": True, "color_system": "standard", "legacy_windows": False}
    _, _, source, sink = lines_of(120, **colours)
    assert "\x1b[33m 95%" in source
    assert re.search(r"\x1b\[31m +25%", sink)
