"""Failures in groups: each is counted once, and there are never too many groups."""

import pytest

from penstock.engine.model.ids import ResourceId, TaskManagerLocation
from penstock.engine.model.messages import FailureInfo
from penstock.ops.jobs.failure_record import (
    MOST_GROUPS,
    MOST_PLACES,
    FailureRecord,
    FailureSeen,
    FailuresSeen,
    UserLine,
    read_failure,
)
from tests.tools.observation.job_records import BEGAN, PLACE, attempt

OWN = """\
ValueError: cannot use 17
  File "/home/me/jobs/prices.py", line 12, in outer
    return inner(value)
           ~~~~~^^^^^^^
  File "/home/me/jobs/prices.py", line 20, in inner
    return int(json.loads(value))
  File "/usr/lib/python3.11/json/__init__.py", line 346, in loads
    return _default_decoder.decode(s)
  File "/opt/venv/lib/python3.11/site-packages/fast/__init__.py", line 3, in quick
    raise ValueError(f"cannot use {value}")
  in operator: parse prices
  at record:   ('a', 17)
  built at:    /home/me/jobs/prices.py:40
  in task:     Source -> parse prices (1/2), attempt 3"""
TRACEBACK = """\
Traceback (most recent call last):
  File "/site/penstock/engine/hosting/taskmanager/task/thread.py", line 5, in run
    call()
OSError: no space on device 7
  in task:     Map (1/2), attempt 0"""


def user(text):
    return read_failure(FailureInfo("UserCodeError", text, is_user_code=True))


def test_a_user_error_names_the_line_operator_and_record():
    told = user(OWN)
    assert (told.exception, told.headline) == ("ValueError", "ValueError: cannot use 17")
    assert (told.operator, told.record) == ("parse prices", "('a', 17)")
    assert told.built_at == "/home/me/jobs/prices.py:40"
    assert told.user_line == UserLine(
        "/home/me/jobs/prices.py", 20, "inner", "return int(json.loads(value))"
    )


def test_all_frames_behind_the_text_change_nothing():
    frames = '  all frames:\nTraceback:\n  File "/home/me/other.py", line 1, in f\nValueError: x'
    assert user(f"{OWN}\n{frames}") == user(OWN)


def test_an_error_of_penstock_has_no_line_of_the_user():
    told = read_failure(FailureInfo("OSError", TRACEBACK))
    assert (told.exception, told.headline) == ("OSError", "OSError: no space on device 7")
    assert (told.user_line, told.record, told.operator) == (None, None, "")


def test_a_source_line_that_is_not_known_is_empty():
    told = user('KeyError\n  File "<stdin>", line 1, in f\n  in operator: x')
    assert told.exception == "KeyError"
    assert told.user_line == UserLine("<stdin>", 1, "f", "")


@pytest.mark.parametrize("text", ["", "only words", "  indented"])
def test_a_text_without_parts(text):
    told = read_failure(FailureInfo("Strange", text))
    assert (told.exception, told.user_line, told.operator) == ("Strange", None, "")


def test_failures_at_one_line_are_the_same_whatever_their_values():
    other = OWN.replace("17", "400").replace("attempt 3", "attempt 9")
    assert user(other).fingerprint("t") == user(OWN).fingerprint("t")
    assert user(OWN.replace("line 20", "line 21")).fingerprint("t") != user(OWN).fingerprint("t")
    assert user(OWN.replace("parse prices", "b")).fingerprint("t") != user(OWN).fingerprint("t")
    assert user(OWN.replace("ValueError", "KeyError")).fingerprint("t") != user(OWN).fingerprint(
        "t"
    )


def test_without_a_line_the_text_counts_but_for_its_numbers():
    def of(text, task="Map"):
        return read_failure(FailureInfo("TaskManagerLost", text)).fingerprint(task)

    lost = "TaskManager tm-3 on 10.0.0.7 is lost: pid 815, id 0a1b2c3d4e"
    assert of(lost) == of("TaskManager tm-14 on 10.0.0.8 is lost: pid 4, id ffee12345678")
    assert of(lost) != of("TaskManager tm-3 on 10.0.0.7 is gone: pid 815, id 0a1b2c3d4e")
    assert of(lost) != of(lost, "Sink")


def seen(number, text="ValueError: x", subtask=0, location=PLACE, **more):
    failure = FailureInfo("UserCodeError", text, is_user_code=True)
    one = attempt(subtask=subtask, number=number)
    return FailureSeen(failure, BEGAN + number, "Map[0]", one, location, number, **more)


def told(record, *entries):
    record.apply(FailuresSeen(entries))
    return record.groups()


def test_a_failure_that_is_told_again_counts_once():
    record = FailureRecord()
    told(record, (seen(1), ()))
    told(record, (seen(1), ()), (seen(2), (seen(3, "KeyError: y"),)))
    groups = told(record, (seen(2), (seen(3, "KeyError: y"),)), (seen(4, subtask=1), ())).groups
    assert [(one.text.exception, one.count) for one in groups] == [
        ("ValueError", 3),
        ("KeyError", 1),
    ]
    first, other = groups
    assert (first.first_ms, first.newest.number) == (BEGAN + 1, 4)
    assert (first.subtasks, first.locations) == ({0: 2, 1: 1}, {PLACE: 3})
    assert (first.is_root, other.is_root) == (True, False)


def test_what_follows_a_failure_may_come_later():
    record = FailureRecord()
    told(record, (seen(1), ()))
    (group,) = told(record, (seen(1, restart=1, delay_ms=50), ())).groups
    assert (group.newest.restart, group.newest.delay_ms, group.count) == (1, 50, 1)


def test_a_root_may_turn_out_to_be_a_consequence():
    record = FailureRecord()
    told(record, (seen(1, "ConnectionError: broken"), ()))
    cause, consequence = told(record, (seen(2), (seen(1, "ConnectionError: broken"),))).groups
    assert (cause.is_root, consequence.is_root) == (True, False)
    assert (cause.count, consequence.count) == (1, 1)


def test_the_oldest_groups_are_forgotten_and_counted():
    record = FailureRecord()
    letters = [
        f"{'abcdefghij'[n // 100]}{'abcdefghij'[n // 10 % 10]}{'abcdefghij'[n % 10]}"
        for n in range(MOST_GROUPS + 3)
    ]
    for number, name in enumerate(letters, 1):
        told(record, (seen(number, f"Error: {name}"), ()))
    groups = record.groups()
    assert (len(groups.groups), groups.forgotten) == (MOST_GROUPS, 3)
    assert groups.groups[0].text.headline == f"Error: {letters[-1]}"


def test_many_subtasks_and_places_are_counted_not_named():
    record = FailureRecord()
    for number in range(1, MOST_PLACES + 6):
        place = TaskManagerLocation(ResourceId(f"tm-{number}"), "host", number)
        told(record, (seen(number, subtask=number, location=place), ()))
    (group,) = record.groups().groups
    assert (len(group.subtasks), group.more_subtasks, group.count) == (MOST_PLACES, 5, 25)
    assert len(group.locations) == MOST_PLACES
