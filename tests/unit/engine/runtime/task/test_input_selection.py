"""InputSelectionHandler and StreamMultipleInputProcessor, by docs/spec/tasks.md#several-inputs."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.model.errors import ConfigurationError, UserError
from penstock.engine.runtime.elements import EndOfData, RowBatch, Watermark
from penstock.engine.runtime.task.input_processor import (
    ALL,
    InputSelectionHandler,
    InputStatus,
    StreamMultipleInputProcessor,
    StreamOneInputProcessor,
    select_next,
)

FIRST, SECOND = 1, 2


class Fake:
    """An input that is a list; `None` in it: nothing for now, once."""

    def __init__(self, *elements, is_endless=False) -> None:
        self.elements = deque(elements)
        self.is_endless = is_endless
        self.records_in = 0

    def poll(self):
        if not self.elements:
            return ()
        element = self.elements.popleft()
        return () if element is None else (element,)

    @property
    def is_available(self) -> bool:
        return bool(self.elements)

    @property
    def is_finished(self) -> bool:
        return not self.elements and not self.is_endless


def read_all(processor, turns=100):
    found = []
    for _ in range(turns):
        polled = processor.poll()
        if polled is not None:
            found.append((polled[0], *polled[1]))
    return found


def values(found):
    return [
        (index, value) for index, element in found if isinstance(element, RowBatch)
        for value in element.values
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("selected", "available", "last", "chosen"),
    [(0b11, 0b11, 0, 1), (0b11, 0b11, 1, 0), (ALL, 0b101, 0, 2), (ALL, 0b101, 2, 0),
     (ALL, 0b1, 0, 0), (0b10, 0b01, 0, -1), (ALL, 0, 1, -1), (ALL, ALL, 5, 6), (0, ALL, 0, -1)],
)  # fmt: skip
def test_the_first_candidate_after_the_last_one_read_is_next(selected, available, last, chosen):
    assert select_next(selected, available, last) == chosen


@given(st.integers(1, 2**10 - 1), st.integers(0, 9))
def test_every_candidate_gets_its_turn_in_one_round(available, last):
    count = available.bit_count()
    seen = []
    for _ in range(count):
        last = select_next(ALL, available, last)
        seen.append(last)
    assert sorted(seen) == [bit for bit in range(10) if available >> bit & 1]


def test_two_inputs_are_read_in_turns_beginning_with_the_first():
    inputs = [Fake(*(RowBatch([f"{name}{i}"]) for i in range(3))) for name in "ab"]
    found = read_all(StreamMultipleInputProcessor(inputs))
    assert [value for _, value in values(found)] == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_an_input_that_was_empty_gets_its_turn_as_soon_as_it_has_something():
    slow = Fake(None, RowBatch(["s"]), is_endless=True)
    fast = Fake(*(RowBatch([i]) for i in range(5)))
    found = read_all(StreamMultipleInputProcessor([slow, fast]))
    assert values(found)[:3] == [(1, 0), (0, "s"), (1, 1)]


def test_an_operator_that_selects_gets_its_records_one_by_one_from_the_input_it_names():
    wanted = iter([FIRST, SECOND, SECOND, FIRST, FIRST, FIRST, ALL, ALL, ALL, ALL])
    inputs = [
        Fake(RowBatch([1, 2, 3]), is_endless=True),
        Fake(RowBatch(["a", "b"]), is_endless=True),
    ]
    processor = StreamMultipleInputProcessor(inputs, lambda: next(wanted))
    assert values(read_all(processor, 5)) == [(0, 1), (1, "a"), (1, "b"), (0, 2), (0, 3)]


def test_an_operator_selects_when_it_has_processed_what_it_was_given():
    wanted = [FIRST]
    inputs = [Fake(RowBatch([1, 2]), is_endless=True), Fake(RowBatch(["a"]), is_endless=True)]
    processor = StreamMultipleInputProcessor(inputs, lambda: wanted[0])
    assert processor.poll()[0] == 0
    wanted[0] = SECOND  # what the record made the operator want
    assert processor.poll()[0] == 1
    wanted[0] = FIRST
    assert processor.poll()[0] == 0


def test_an_operator_that_selects_only_what_has_ended_is_told_so():
    inputs = [Fake(RowBatch([1]), EndOfData(drain=True)), Fake(RowBatch([2]), is_endless=True)]
    processor = StreamMultipleInputProcessor(inputs, lambda: FIRST)
    with pytest.raises(UserError, match=r"can not make progress.*\[0\].*\[1\]"):
        read_all(processor)


def test_what_has_only_its_end_left_is_read_whatever_the_operator_selects():
    handler = InputSelectionHandler(2, iter([FIRST, FIRST, SECOND, SECOND]).__next__)
    handler.start()
    handler.was_read(0, InputStatus.END_OF_DATA)
    assert {handler.next_input() for _ in range(4)} == {0}
    handler.was_read(0, InputStatus.MORE_AVAILABLE)
    assert {handler.next_input() for _ in range(4)} == {0, 1}
    handler.was_read(0, InputStatus.END_OF_INPUT)
    assert {handler.next_input() for _ in range(4)} == {1}


def test_the_task_has_ended_its_data_when_all_inputs_have_and_was_stopped_if_one_was():
    handler = InputSelectionHandler(2)
    assert handler.was_read(0, InputStatus.END_OF_DATA) is InputStatus.MORE_AVAILABLE
    assert handler.was_read(1, InputStatus.STOPPED) is InputStatus.STOPPED
    assert handler.was_read(0, InputStatus.END_OF_INPUT) is InputStatus.MORE_AVAILABLE
    assert handler.was_read(1, InputStatus.END_OF_INPUT) is InputStatus.END_OF_INPUT
    drained = InputSelectionHandler(1)
    assert drained.was_read(0, InputStatus.END_OF_DATA) is InputStatus.END_OF_DATA


def test_an_input_that_ends_does_not_keep_the_others_from_being_read():
    inputs = [Fake(), Fake(Watermark(1), RowBatch([1])), Fake(RowBatch([2]))]
    processor = StreamMultipleInputProcessor(inputs)
    assert sorted(values(read_all(processor))) == [(1, 1), (2, 2)]
    assert processor.is_finished


def test_one_input_passes_everything_on():
    processor = StreamOneInputProcessor(Fake(RowBatch([1]), Watermark(3)))
    assert [element for _, element in read_all(processor)] == [RowBatch([1]), Watermark(3)]
    assert processor.is_finished


def test_more_than_63_inputs_are_refused():
    with pytest.raises(ConfigurationError, match="64 inputs"):
        InputSelectionHandler(64)
