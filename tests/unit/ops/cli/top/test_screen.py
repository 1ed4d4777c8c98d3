"""How frames are laid out: widths, heights, orders, bars."""

import pytest

from penstock.ops.cli.top.facts import CheckpointRow, Frame, JobPage, JobRow, VertexRow
from penstock.ops.cli.top.screen import JOB_ORDERS, VERTEX_ORDERS, Screen, ordered

NAMES = (
    ("words", "RUNNING", 5000),
    ("prices", "FAILED", 1000),
    ("a job " + "x" * 90, "RUNNING", 9000),
)
JOBS = tuple(
    JobRow(f"{number:032x}", *known, 4, 4, "http://localhost:8081")
    for number, known in enumerate(NAMES)
)
VERTICES = (
    VertexRow("1" * 32, "Source: [prices]", "4 RUNNING", 0.0, 1000.0, 0.2, 0.75, None),
    VertexRow("2" * 32, "Map", "4 RUNNING", 1000.0, 10.0, 0.95, 0.0, 2500),
    VertexRow("3" * 32, "Sink", "4 CREATED"),
)
PAGE = JobPage(
    JOBS[0], VERTICES, "'Map' limits the job. " * 20, CheckpointRow(7, 120, 4096, 900, 1)
)
LIST, JOB = Frame(JOBS), Frame(JOBS, PAGE)


def lines(frame, columns, order="", rows=None, chosen=None, encoding="utf-8"):
    return Screen(columns, None, encoding).lines(frame, chosen, order, rows)


@pytest.mark.parametrize("order", JOB_ORDERS)
def test_jobs_that_run_come_first(order):
    assert [row.status for row in ordered(LIST, order)] == ["RUNNING", "RUNNING", "FAILED"]


def test_a_sentence_that_has_no_room_ends_with_an_ellipsis():
    problem = Frame(problem="no driver answers " * 90)
    assert lines(problem, 60)[3].endswith("…")
    assert "…" not in "".join(lines(Frame(problem="no driver answers " * 9), 60))


@pytest.mark.parametrize("columns", [20, 33, 50, 77, 100, 121, 250])
@pytest.mark.parametrize("rows", [2, 4, 8, 30, None])
@pytest.mark.parametrize("frame", [LIST, JOB, Frame(problem="no driver answers " * 9)])
def test_no_frame_is_larger_than_its_window(columns, rows, frame):
    found = lines(frame, columns, rows=rows, chosen=1)
    assert all(len(line) <= columns for line in found)
    assert rows is None or len(found) <= rows


@pytest.mark.parametrize("chosen", range(100))
def test_the_chosen_row_is_always_in_the_window(chosen):
    many = tuple(VertexRow(f"{n:032x}", f"Map {n}.", "1 RUNNING") for n in range(100))
    found = lines(Frame(JOBS, JobPage(JOBS[0], many)), 100, rows=12, chosen=chosen)
    assert len(found) <= 12
    assert any(line.startswith(f"Map {chosen}.") for line in found)


def test_a_page_tells_status_checkpoint_sentence_and_vertices():
    found = lines(JOB, 140)
    assert found[0].startswith("words (00000000) RUNNING for 5.0 s, 4/4 subtasks run")
    assert found[1].startswith("checkpoint 7 took 0.1 s (4,096 bytes), 0.9 s ago; 1 failed")
    assert found[2].startswith("'Map' limits the job.")
    rows = {line.split()[0]: line for line in found[-3:]}
    assert "██████████  95%" in rows["Map"]
    assert rows["Map"].rstrip().endswith("2.5 s")
    assert "Source: [prices]" in rows["Source:"]
    assert rows["Sink"].split()[1:] == ["4", "CREATED", "-", "-", "-", "-", "-"]


def test_a_terminal_without_these_characters_gets_others():
    text = "\n".join(lines(JOB, 140, encoding="ascii"))
    assert "##########  95%" in text
    text.replace("…", "").encode("ascii")


def test_orders_of_vertices():
    names = {order: [row.name for row in ordered(JOB, order)] for order in VERTEX_ORDERS}
    assert names == {
        "plan": ["Source: [prices]", "Map", "Sink"],
        "busy": ["Map", "Source: [prices]", "Sink"],
        "back-pressured": ["Source: [prices]", "Map", "Sink"],
        "in/s": ["Map", "Source: [prices]", "Sink"],
        "out/s": ["Source: [prices]", "Map", "Sink"],
    }


def test_orders_of_jobs():
    first = {order: ordered(LIST, order)[0].name[:6] for order in JOB_ORDERS}
    assert first == {"newest": "words", "name": "a job ", "longest": "a job "}


def test_what_went_wrong_is_shown_with_what_is_known():
    found = lines(Frame(JOBS, problem="no driver answers"), 80)
    assert found[1] == "no driver answers"
    assert any(line.startswith("words") for line in found)


def test_names_and_problems_do_not_steer_the_terminal():
    evil, escaped = "\x1b[2J\x9b", r"\u001b[2J\u009b"
    job = JobRow(evil, evil, evil, 0, 1, 1, evil)
    page = JobPage(job, (VertexRow("1" * 32, evil, evil),), evil)
    for frame in (Frame((job,), None, evil), Frame((job,), page, evil)):
        told = "\n".join(lines(frame, 200))
        assert "\x1b" not in told
        assert "\x9b" not in told
        assert told.count(escaped) >= 4
