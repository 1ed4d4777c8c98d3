"""Turns the inputs of a task into one sequence of elements for the head operator.

Source: Flink StreamOneInputProcessor, StreamMultipleInputProcessor (its two-input processor is the latter with two
inputs). Does not know channels, and of operators only `next_selection`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.runtime.elements import ColumnBatch, Element, EndOfData, RowBatch
from penstock.runtime.task.input_selection import NONE_AVAILABLE, InputSelectionHandler
from penstock.runtime.task.input_status import InputStatus


class StreamTaskInput(Protocol):
    """One logical input: a gate, or several as one."""

    records_in: int

    def poll(self) -> Sequence[Element]:
        """The next elements, in order; empty if there are none for now."""
        ...

    def poll_priority(self) -> Sequence[Element]:
        """The elements that overtake all others, or other elements that were found in their place; empty: there are none."""
        ...

    @property
    def is_available(self) -> bool:
        """Whether `poll` may give something."""
        ...

    @property
    def has_read_all(self) -> bool:
        """Whether all records have come. The end, and barriers, may still follow."""
        ...

    @property
    def is_finished(self) -> bool:
        """Whether nothing will ever come."""
        ...


class StreamOneInputProcessor:
    """A `runtime.task.stream_task.TaskInput` for a single input."""

    is_source = False
    inputs = 1
    held: Sequence[tuple[int, Element]] = ()

    def __init__(self, task_input: StreamTaskInput) -> None:
        self._input = task_input

    def poll(self) -> tuple[int, Sequence[Element]] | None:
        elements = self._input.poll()
        return (0, elements) if elements else None

    def poll_priority(self) -> tuple[int, Sequence[Element]] | None:
        elements = self._input.poll_priority()
        return (0, elements) if elements else None

    @property
    def has_read_all(self) -> bool:
        return self._input.has_read_all

    @property
    def is_finished(self) -> bool:
        return self._input.is_finished

    @property
    def records_in(self) -> int:
        return self._input.records_in


class StreamMultipleInputProcessor:
    """A `runtime.task.stream_task.TaskInput` for several inputs, which are read fairly or as the operator selects.

    Args: next_selection: of an operator that chooses after each record; it gets its records one by one.
    """

    is_source = False

    def __init__(
        self,
        inputs: Sequence[StreamTaskInput],
        next_selection: Callable[[], int] | None = None,
    ) -> None:
        self._inputs = inputs
        self._handler = InputSelectionHandler(len(inputs), next_selection)
        self._is_one_by_one = next_selection is not None
        self._held: list[deque[Element]] = [deque() for _ in inputs]
        self._is_started = False
        self._last_read: tuple[int, InputStatus] | None = None

    @property
    def chooses(self) -> bool:
        """Whether the operator chooses the input to read, so that others may wait for long."""
        return self._is_one_by_one

    def poll(self) -> tuple[int, Sequence[Element]] | None:
        """The next elements and their input. The elements returned before must have been processed, because the
        operator selects anew.
        """
        handler = self._handler
        if not self._is_started:
            self._is_started = True
            handler.start()
        if self._last_read is not None:
            last, self._last_read = self._last_read, None
            handler.was_read(*last)
        if handler.wants_recheck:
            self._look()
        while (index := handler.next_input()) != NONE_AVAILABLE:
            elements = self._read(index)
            status = self._status(index, elements)
            if elements:
                self._last_read = index, status
                return index, elements
            handler.was_read(index, status)
        return None

    def poll_priority(self) -> tuple[int, Sequence[Element]] | None:
        """The overtaking elements of the first input that has some, even if that input is not selected."""
        for index, one in enumerate(self._inputs):
            elements = one.poll_priority()
            if elements:
                return index, elements
        return None

    @property
    def held(self) -> Sequence[tuple[int, Element]]:
        """Elements that were read and wait for their input to be selected."""
        return [(index, one) for index, held in enumerate(self._held) for one in held]

    @property
    def inputs(self) -> int:
        return len(self._inputs)

    @property
    def has_read_all(self) -> bool:
        return all(one.has_read_all for one in self._inputs)

    @property
    def is_finished(self) -> bool:
        return all(one.is_finished for one in self._inputs) and not any(self._held)

    @property
    def records_in(self) -> int:
        return sum(one.records_in for one in self._inputs)

    def _look(self) -> None:
        """Note which inputs have elements, and which have ended without any."""
        for index, one in enumerate(self._inputs):
            if self._handler.is_finished(index):
                continue
            is_available = bool(self._held[index]) or one.is_available or one.is_finished
            self._handler.set_available(index, is_available=is_available)

    def _read(self, index: int) -> Sequence[Element]:
        if not self._is_one_by_one:
            return self._inputs[index].poll()
        held = self._held[index]
        if not held:
            held.extend(self._inputs[index].poll())
        if not held:
            return ()
        element = held.popleft()
        if isinstance(element, (RowBatch, ColumnBatch)) and len(element) > 1:
            held.appendleft(element.slice(1, len(element)))
            element = element.slice(0, 1)
        return (element,)

    def _status(self, index: int, elements: Sequence[Element]) -> InputStatus:
        if not elements:
            is_over = self._inputs[index].is_finished
            return InputStatus.END_OF_INPUT if is_over else InputStatus.NOTHING_AVAILABLE
        last = elements[-1]
        if isinstance(last, EndOfData):
            return InputStatus.END_OF_DATA if last.drain else InputStatus.STOPPED
        return InputStatus.MORE_AVAILABLE
