"""An error keeps the record at which it was raised until it becomes text, and no longer."""

import pytest

from penstock.engine.runtime.records.dead_letters import (
    FiredTimer,
    FiredWindow,
    each,
    note_record,
    take_note,
)


class Closed(BaseException):
    """Refuses attributes, and to show those that it has."""

    def __setattr__(self, name, value):
        raise SystemExit

    def __getattribute__(self, name):
        raise SystemExit


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, Closed])
def test_the_record_is_taken_once(kind):
    error = kind()
    note_record(error, {"n": 1}, "job.py:7")
    assert take_note(error) == ["  at record:   {'n': 1}", "  key_by at:   job.py:7"]
    assert take_note(error) == []


def test_the_last_record_counts():
    error = ValueError()
    note_record(error, 1)
    note_record(error, None)
    assert take_note(error) == ["  at record:   None"]


@pytest.mark.parametrize("place", [0, 1, 4])
def test_the_record_of_a_call_is_the_one_that_was_handed_out(place):
    def fails(value):
        if value == place:
            raise GeneratorExit
        return value

    with pytest.raises(GeneratorExit) as caught:
        each(fails, [0, 1, 2, 3, 4], "job.py:7")
    assert take_note(caught.value) == [f"  at record:   {place}", "  key_by at:   job.py:7"]


def test_a_timer_and_a_window_are_told_as_what_they_are():
    error = ValueError()
    note_record(error, FiredTimer("k", 7, "EVENT_TIME"))
    assert take_note(error) == [
        "  at timer:    FiredTimer(key='k', timestamp=7, domain='EVENT_TIME')"
    ]
    note_record(error, FiredWindow("k", 3))
    assert take_note(error) == ["  at window:   FiredWindow(key='k', window=3)"]


def test_results_come_in_order():
    assert each(lambda value: value * 2, [1, 2, 3]) == [2, 4, 6]
