"""Lines that repeat: told once, then counted."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.hosting.reporting.logs.folding import Folding, sameness_of
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
