"""Failures in groups: each is counted once, and there are never too many groups."""

from dataclasses import replace

from penstock.engine.model.ids import ResourceId, TaskManagerLocation
from penstock.engine.model.messages import FailureInfo
from penstock.ops.jobs.events import FailureSeen, FailuresSeen
from penstock.ops.jobs.failure_record import MOST_GROUPS, MOST_PLACES, FailureRecord
from tests.tools.observation.job_records import BEGAN, PLACE, attempt


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
    assert (first.subtasks, first.locations) == (((0, 2), (1, 1)), ((PLACE, 3),))
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


def test_groups_without_news_are_the_same_object():
    record = FailureRecord()
    assert record.groups() is record.groups()
    groups = told(record, (seen(1), ()))
    assert record.groups() is groups
    assert told(record, (seen(1), ()), (replace(seen(2)), ())) is not groups
