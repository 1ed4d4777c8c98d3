"""Story: bounded, readable, and part of the error of a machine that finds itself wrong."""

import pytest

from penstock.engine.machines.story import IN_AN_ERROR, Story
from penstock.engine.model.errors import BrokenInvariant


def test_a_story_keeps_the_newest_lines():
    story = Story("clock", 3)
    for number in range(5):
        story.add("Tick", number, "of 5")
    assert [line.did[0] for line in story] == [2, 3, 4]
    assert [str(line) for line in story.last(2)] == ["Tick: 3 of 5", "Tick: 4 of 5"]
    assert (len(story), story.dropped) == (3, 2)
    assert str(story).splitlines()[0] == "(2 lines before are forgotten)"


def test_the_last_lines_become_part_of_an_error():
    story = Story("clock")
    for number in range(IN_AN_ERROR + 1):
        story.add("Tick", number)
    bug = BrokenInvariant("'it goes on' does not hold.")
    story.annotate(bug)
    with pytest.raises(BrokenInvariant) as caught:
        raise bug
    lines = str(caught.value).splitlines()
    assert lines[:3] == [
        "'it goes on' does not hold.",
        "The last of the story of the clock:",
        "  Tick: 1",
    ]
    assert len(lines) == IN_AN_ERROR + 2


def test_an_error_before_anything_happened_is_as_it_was():
    bug = BrokenInvariant("'it goes on' does not hold.")
    Story("clock").annotate(bug)
    assert str(bug) == "'it goes on' does not hold."
