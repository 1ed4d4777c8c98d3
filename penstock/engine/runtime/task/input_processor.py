"""Turns the inputs of a task into one sequence of elements for the head operator.

Source: Flink StreamOneInputProcessor, StreamMultipleInputProcessor (its two-input processor is the latter with two
inputs). Does not know channels, and of operators only `next_selection`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, Protocol

from penstock.engine.model.errors import ConfigurationError, UserError
from penstock.engine.runtime.elements import ColumnBatch, Element, EndOfData, RowBatch

# ---------------------------------------------------------------------- input selection
# Which input of a task with several inputs is read next: fairly among those that the operator
# selects and that have something.
#
# Inputs are the bits of a mask; the first one is bit 0. Does not know data. Source: Flink
# InputSelection, MultipleInputSelectionHandler; an operator that selects has `next_selection()`.


ALL: Final = -1
NONE_AVAILABLE: Final = -1
MAX_INPUTS: Final = 63
_EVERY_BIT: Final = (1 << MAX_INPUTS) - 1


def select_next(selected: int, available: int, last_read: int) -> int:
    """The first input after `last_read`, in a circle, that is selected and available; -1: there is none."""
    candidates = selected & available & _EVERY_BIT
    if not candidates:
        return NONE_AVAILABLE
    after = candidates >> (last_read + 1)
    return last_read + 1 + _lowest_bit(after) if after else _lowest_bit(candidates)


def _lowest_bit(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


class InputSelectionHandler:
    """Keeps which inputs of one task are available, finished and selected.

    Args: next_selection: of the operator; None: it always selects all inputs.
    """

    def __init__(self, inputs: int, next_selection: Callable[[], int] | None = None) -> None:
        if not 0 < inputs <= MAX_INPUTS:
            raise ConfigurationError(
                f"an operator has {inputs} inputs; it can have 1 to {MAX_INPUTS}. Union some of them first."
            )
        self._all = (1 << inputs) - 1
        self._next_selection = next_selection
        self._selected = self._all
        self._available = self._all
        self._not_finished = self._all
        self._data_finished = 0
        self._is_stopped = False
        # With two inputs, the first one is read first.
        self._last_read = 1 if inputs > 1 else 0

    # ------------------------------------------------------------------ choosing

    def start(self) -> None:
        """Ask the operator for its first selection."""
        self._select()

    def next_input(self) -> int:
        """The input to read next; -1: no selected input is available."""
        chosen = select_next(self._selected & self._not_finished, self._available, self._last_read)
        if chosen != NONE_AVAILABLE:
            self._last_read = chosen
        return chosen

    @property
    def wants_recheck(self) -> bool:
        """Whether some selected input counts as empty. Look again, because it would otherwise never be read."""
        wanted = self._selected & self._not_finished
        return wanted & ~self._available != 0

    def is_finished(self, index: int) -> bool:
        return not self._not_finished & 1 << index

    # ------------------------------------------------------------------ results of reading

    def set_available(self, index: int, *, is_available: bool) -> None:
        if is_available:
            self._available |= 1 << index
        else:
            self._available &= ~(1 << index)

    def was_read(self, index: int, status: InputStatus) -> InputStatus:
        """Note the result of reading input `index`. Returns the result for the task.

        Raises: UserError: all selected inputs have ended, and others have not.
        """
        bit = 1 << index
        if status is InputStatus.MORE_AVAILABLE:
            self._select()
        elif status is InputStatus.NOTHING_AVAILABLE:
            self._available &= ~bit
        elif status is InputStatus.END_OF_INPUT:
            self._not_finished &= ~bit
            self._data_finished &= ~bit
            self._select()
        else:
            self._data_finished |= bit
            self._is_stopped |= status is InputStatus.STOPPED
            self._select()
        return self._overall(status)

    def _overall(self, status: InputStatus) -> InputStatus:
        if not self._not_finished:
            return InputStatus.END_OF_INPUT
        has_ended_now = status in (InputStatus.END_OF_DATA, InputStatus.STOPPED)
        if has_ended_now and self._data_finished == self._not_finished:
            return InputStatus.STOPPED if self._is_stopped else InputStatus.END_OF_DATA
        if self._selected & self._available & self._not_finished:
            return InputStatus.MORE_AVAILABLE
        return InputStatus.NOTHING_AVAILABLE

    def _select(self) -> None:
        if self._next_selection is None or not self._not_finished:
            return
        wanted = self._next_selection() & self._all
        # If only the end of an input is left, it is read whatever the operator selects. Otherwise
        # the task would never end.
        self._selected = wanted | self._data_finished
        if not self._selected & self._not_finished:
            raise UserError(
                f"the task can not make progress: the operator selects only inputs {_names(wanted)}, which have ended, "
                f"while {_names(self._not_finished)} have not. next_selection() must name one of those."
            )


def _names(mask: int) -> list[int]:
    return [index for index in range(MAX_INPUTS) if mask >> index & 1]


# ---------------------------------------------------------------------- input processor


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
    """A `engine.runtime.task.stream_task.TaskInput` for a single input."""

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
    """A `engine.runtime.task.stream_task.TaskInput` for several inputs, which are read fairly or as the operator selects.

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


class InputStatus(StrEnum):
    """The result of processing input, and what the mailbox loop does next. Source: Flink DataInputStatus,
    StreamTask.processInput.

    END_OF_DATA: ended by draining. STOPPED: ended without draining. END_OF_INPUT: nothing will ever come.
    """

    MORE_AVAILABLE = "MORE_AVAILABLE"
    NOTHING_AVAILABLE = "NOTHING_AVAILABLE"
    END_OF_DATA = "END_OF_DATA"
    STOPPED = "STOPPED"
    END_OF_INPUT = "END_OF_INPUT"


class NextMove(StrEnum):
    """What the default action does after a call."""

    RETURN = "return"
    SUSPEND_UNTIL_INPUT = "suspend_until_input"
    SUSPEND_UNTIL_OUTPUT = "suspend_until_output"
    SUSPEND_UNTIL_INPUT_AND_OUTPUT = "suspend_until_input_and_output"
    ALL_ACTIONS_COMPLETED = "all_actions_completed"


def next_move(status: InputStatus, *, is_output_available: bool) -> NextMove:
    """After the end of data there is another turn. A full output is waited for before an empty input."""
    if status is InputStatus.END_OF_INPUT:
        return NextMove.ALL_ACTIONS_COMPLETED
    if status is InputStatus.NOTHING_AVAILABLE:
        if is_output_available:
            return NextMove.SUSPEND_UNTIL_INPUT
        return NextMove.SUSPEND_UNTIL_INPUT_AND_OUTPUT
    return NextMove.RETURN if is_output_available else NextMove.SUSPEND_UNTIL_OUTPUT
