"""Lines of logs as text and as JSON."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.hosting.reporting.logs.lines import (
    FORMS,
    Folding,
    LogLine,
    Place,
    sameness_of,
)
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, VertexId
from penstock.engine.model.messages import LogEvent
from penstock.ops.console.console import first_line, repeated_line

ATTEMPT = AttemptId(ExecutionVertexId(VertexId("v"), 2), 0)
EVENT = LogEvent(0, 30, "WARNING", "app", ATTEMPT, "Map", "no price for 'EUR'", "no price for %r")


def of(subtask, **changes):
    attempt_id = AttemptId(ExecutionVertexId(VertexId("v"), subtask), 0)
    return replace(EVENT, attempt_id=attempt_id, **changes)


def test_the_first_line_is_told_at_once_and_the_others_together():
    folding = Folding(1000)
    assert [folding.take(of(subtask), 0) for subtask in (2, 0, 2)] == [True, False, False]
    assert folding.due(999) == []
    (repeats,) = folding.due(1000)
    assert (repeats.times, repeats.subtasks) == (2, (0, 2))
    assert folding.due(5000) == []


def test_lines_differ_by_level_logger_and_what_they_say():
    folding = Folding(1000)
    others = [{"level": 40}, {"logger": "other"}, {"sameness": "another"}, {}]
    assert all(folding.take(of(0, **change), 0) for change in others)


def test_a_line_that_comes_back_after_a_pause_is_a_new_one():
    folding = Folding(1000)
    folding.take(EVENT, 0)
    assert folding.due(1000) == []
    assert folding.take(EVENT, 1001)


def test_a_line_that_goes_on_is_told_less_and_less_often():
    folding = Folding(1000, grows=True)
    folding.take(EVENT, 0)
    told = []
    for now in range(100, 16_000, 100):
        folding.take(EVENT, now)
        told += [now for _ in folding.due(now)]
    assert told == [1000, 3000, 7000, 15_000]


def test_more_different_lines_than_it_may_know_are_counted():
    folding = Folding(1000, most=2)
    told = [folding.take(of(0, sameness=str(number)), 0) for number in range(5)]
    assert told == [True, True, False, False, False]
    assert folding.left_out == 3


@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.sampled_from("abc"), st.integers(0, 3)), max_size=40
    ),
    st.booleans(),
)
def test_no_line_is_lost_and_none_is_counted_twice(lines, grows):
    """Whatever comes when: those that are told, the repeats and those left out are all."""
    folding = Folding(500, grows=grows, most=2)
    now = told = repeats = 0
    for wait, sameness, more in lines:
        now += wait
        event = of(0, sameness=sameness, repeats=more)
        told += folding.take(event, now)
        repeats += sum(one.times for one in folding.due(now))
    repeats += sum(one.times for one in folding.due(now, is_all=True))
    assert told + repeats + folding.left_out == sum(1 + more for _, _, more in lines)


def test_what_is_put_into_a_text_does_not_make_it_another_line():
    assert sameness_of("no %s", has_arguments=True, text="no EUR") == "no %s"
    same = [sameness_of(text, has_arguments=False, text=text) for text in ("row 17", "row 8")]
    assert same[0] == same[1]
    others = [sameness_of(text, has_arguments=False, text=text) for text in "ab"]
    assert others[0] != others[1]


def test_the_console_has_level_time_logger_operator_and_subtask_from_1():
    assert first_line(EVENT)[8:] == " WARNING app [Map 3]: no price for 'EUR'"
    assert first_line(EVENT)[2:6:3] == "::"
    assert first_line(replace(EVENT, attempt_id=None))[8:] == " WARNING app: no price for 'EUR'"


def test_the_console_tells_how_often_and_in_which_subtasks():
    folding = Folding(0)
    folding.take(of(0), 0)
    for number in range(41):
        folding.take(of(number % 3, text="no price for 'CHF'\nTraceback"), 0)
    (repeats,) = folding.due(0)
    assert (
        repeated_line(repeats)[8:]
        == " WARNING app [Map 1, 2, 3]: no price for 'CHF' ... 41 more times"
    )


JOB = "0123456789abcdef0123456789abcdef"
TASK = Place(JOB, "Map", 3, 4, 1)


def line(place=TASK, message="no price", error=""):
    at_s, thread = 1_750_000_000.5, "thread-1"
    return LogLine(at_s, "WARNING", "app.prices", thread, message, place, "tm-1", error)


def test_a_line_has_time_level_logger_job_operator_subtask_and_attempt():
    assert re.fullmatch(
        r"2025-06-1\d \d\d:\d\d:\d\d,500 WARNING app\.prices "
        rf"\[job={JOB} operator=Map subtask=3/4 attempt=1\] - no price",
        FORMS["text"](line()),
    )


def test_a_line_of_no_task_has_the_job_unless_it_names_it_itself():
    text = FORMS["text"]
    assert text(line(Place(JOB))).endswith(f" app.prices [job={JOB}] - no price")
    assert text(line(Place(JOB), f"job={JOB} RUNNING")).endswith(f"app.prices - job={JOB} RUNNING")
    assert text(line(Place())).endswith("app.prices - no price")


def test_a_traceback_follows_its_line():
    assert FORMS["text"](line(error="Traceback:\nValueError: x")).endswith(
        " - no price\nTraceback:\nValueError: x"
    )


def test_json_is_one_object_a_line_with_the_job_under_flinks_key():
    text = FORMS["json"](line(message="two\nlines", error="Traceback"))
    assert "\n" not in text
    found = json.loads(text)
    assert found.pop("timestamp").startswith("2025-06-1")
    assert found == {
        "level": "WARNING",
        "logger": "app.prices",
        "message": "two\nlines",
        "thread": "thread-1",
        "process": "tm-1",
        "flink-job-id": JOB,
        "operator": "Map",
        "subtask": 3,
        "parallelism": 4,
        "attempt": 1,
        "error": "Traceback",
    }


def test_json_leaves_out_what_is_not_known():
    assert set(json.loads(FORMS["json"](line(Place())))) == {
        "timestamp",
        "level",
        "logger",
        "message",
        "thread",
        "process",
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_has_no_credentials(form):
    place = Place("1c2f" * 8, "Map", 3, 4, 0)
    leak = "cannot reach amqp://me:pa55word@mq/x"
    line = LogLine(0, "ERROR", "app", "t", leak, place, "tm-1", f"OSError: {leak}?token=pa55word")
    told = FORMS[form](line)
    assert "pa55word" not in told
    assert told.count("amqp://******@mq/x") == 2


def test_a_line_does_not_steer_the_terminal_in_which_it_is_read():
    told = FORMS["text"](line(message="sent \x1b[2J", error="Traceback:\nValueError: \x9b"))
    assert r"sent \u001b[2J" in told
    assert told.endswith("\nValueError: \\u009b")
    assert json.loads(FORMS["json"](line(message="sent \x1b[2J")))["message"] == "sent \x1b[2J"
