"""Lines of logs as text and as JSON."""

import json
import re

import pytest

from penstock.engine.hosting.reporting.logs.lines import LogLine, Place, form_of
from penstock.engine.model.errors import ConfigurationError

JOB = "0123456789abcdef0123456789abcdef"
TASK = Place(JOB, "Map", 3, 4, 1)


def line(place=TASK, message="no price", error=""):
    at_s, thread = 1_750_000_000.5, "thread-1"
    return LogLine(at_s, "WARNING", "app.prices", thread, message, place, "tm-1", error)


def test_a_line_has_time_level_logger_job_operator_subtask_and_attempt():
    assert re.fullmatch(
        r"2025-06-1\d \d\d:\d\d:\d\d,500 WARNING app\.prices "
        rf"\[job={JOB} operator=Map subtask=3/4 attempt=1\] - no price",
        form_of("text")(line()),
    )


def test_a_line_of_no_task_has_the_job_unless_it_names_it_itself():
    text = form_of("text")
    assert text(line(Place(JOB))).endswith(f" app.prices [job={JOB}] - no price")
    assert text(line(Place(JOB), f"job={JOB} RUNNING")).endswith(f"app.prices - job={JOB} RUNNING")
    assert text(line(Place())).endswith("app.prices - no price")


def test_a_traceback_follows_its_line():
    assert form_of("text")(line(error="Traceback:\nValueError: x")).endswith(
        " - no price\nTraceback:\nValueError: x"
    )


def test_json_is_one_object_a_line_with_the_job_under_flinks_key():
    text = form_of("json")(line(message="two\nlines", error="Traceback"))
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
    assert set(json.loads(form_of("JSON")(line(Place())))) == {
        "timestamp",
        "level",
        "logger",
        "message",
        "thread",
        "process",
    }


def test_another_form_is_refused_with_those_that_there_are():
    with pytest.raises(ConfigurationError, match="expected text or json, got 'xml'"):
        form_of("xml")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_has_no_credentials(form):
    place = Place("1c2f" * 8, "Map", 3, 4, 0)
    leak = "cannot reach amqp://me:pa55word@mq/x"
    line = LogLine(0, "ERROR", "app", "t", leak, place, "tm-1", f"OSError: {leak}?token=pa55word")
    told = form_of(form)(line)
    assert "pa55word" not in told
    assert told.count("amqp://******@mq/x") == 2
