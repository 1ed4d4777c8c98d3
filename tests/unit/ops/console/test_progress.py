"""Rates, lags and checkpoints in words, and as a table that fits its window."""

import io
import re

import pytest
from rich.console import Console

from penstock.engine.model.checkpoints import CheckpointMetrics, CheckpointType
from penstock.engine.model.ids import VertexId
from penstock.engine.model.messages import CheckpointEnded, VertexProgress
from penstock.engine.model.states import ExecutionState, JobStatus
from penstock.ops.console.live_view import JobTable
from penstock.ops.console.progress import CheckpointNews, Moment, Rates, line_of, snapshot_of

FIGURES = ["in/s", "out/s", "busy", "back-pressured", "watermark lag"]
SOURCE, SINK = VertexId("source"), VertexId("sink")


def test_a_rate_is_of_the_last_seconds():
    rates = Rates(window_s=5.0)
    assert rates.update(2.0, {SOURCE: (0, 200)}) == {SOURCE: (0, 100)}
    for second in range(3, 30):
        found = rates.update(float(second), {SOURCE: (0, 200 + (second - 2) * 10)})
    assert found == {SOURCE: (0, 10)}


def test_rates_begin_again_with_the_attempts_of_a_restart():
    rates = Rates(window_s=5.0)
    rates.update(10.0, {SOURCE: (0, 1000), SINK: (900, 0)})
    assert rates.update(12.0, {SOURCE: (0, 20), SINK: (10, 0)}) == {SOURCE: (0, 10), SINK: (5, 0)}


def test_a_vertex_may_come_later():
    """Its parallelism was open, in a BATCH job."""
    rates = Rates(window_s=5.0)
    rates.update(1.0, {SOURCE: (0, 5)})
    assert rates.update(2.0, {SOURCE: (0, 10), SINK: (8, 0)}) == {SOURCE: (0, 5), SINK: (4, 0)}


def ended(kind=CheckpointType.CHECKPOINT, location="there"):
    return CheckpointEnded(7, kind, 1_000, 3 << 20, CheckpointMetrics(), location)


def test_the_newest_completed_checkpoint_is_told_with_its_age():
    news = CheckpointNews()
    assert news.told(Moment(1.0, 0), 0) == ""
    assert news.told(Moment(1.0, 0), 1) == "checkpoint under way"
    news.ended(ended(location=None), Moment(5.0, 0), 2_500)
    assert news.told(Moment(5.0, 0), 0) == ""
    news.ended(ended(), Moment(5.0, 0), 2_500)
    assert news.told(Moment(65.0, 0), 0) == "checkpoint 7 took 1.5 s (3.0 MiB) 1 min ago"
    for checkpoint_id, now_ms in ((6, 1_010), (7, 1_005), (7, 1_040)):
        news.acknowledged(checkpoint_id, now_ms)
    news.ended(ended(CheckpointType.SAVEPOINT), Moment(70.0, 0), 1_900)
    told = news.told(Moment(70.0, 0), 2)
    assert told == "savepoint 7 took 40 ms (3.0 MiB) 0 ms ago, 2 checkpoints under way"


def progress(vertex_id, name, **more):
    states = {ExecutionState.RUNNING: 2, ExecutionState.FINISHED: 0}
    figures = {"records_in": 0, "records_out": 0} | more
    return VertexProgress(vertex_id, name, 2, states, **figures)


def snapshot(status=JobStatus.RUNNING):
    vertices = [
        progress(SOURCE, "Source: numbers", records_out=3_000, busy_ms_per_s=950.0),
        progress(
            SINK, "Reduce -> Sink: Print", records_in=2_000,
            backpressured_ms_per_s=250.0, watermark_ms=1_000_000,
        ),
    ]  # fmt: skip
    moment = Moment(2.0, 1_012_000)
    return snapshot_of(("word count", status), vertices, Rates(5.0), moment, "checkpoint under way")


def test_a_line_tells_all_that_is_known():
    assert line_of(snapshot()) == (
        "job 'word count': 2 s, RUNNING, 2,500 records/s, checkpoint under way | "
        "Source: numbers: 2 RUNNING, in 0 (0/s), out 3,000 (1,500/s), "
        "busy 95%, back-pressured 0% | "
        "Reduce -> Sink: Print: 2 RUNNING, in 2,000 (1,000/s), out 0 (0/s), "
        "busy 0%, back-pressured 25%, watermark lag 12.0 s"
    )


def lines_of(columns, **options):
    shown = io.StringIO()
    console = Console(file=shown, width=columns, **options)
    console.print(JobTable(snapshot()))
    return shown.getvalue().splitlines()


def words(line):
    return [word.strip() for word in line.split("  ") if word.strip()]


def test_a_wide_table_has_all_columns():
    head, titles, source, sink = lines_of(120)
    assert head == "word count: 2 s, RUNNING, 2,500 records/s, checkpoint under way"
    assert words(titles) == ["vertex", "subtasks", *FIGURES]
    assert words(source) == ["Source: numbers", "2 RUNNING", "0", "1,500", "95%", "0%", "-"]
    figures = ["1,000", "0", "0%", "25%", "12.0 s"]
    assert words(sink) == ["Reduce -> Sink: Print", "2 RUNNING", *figures]


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
