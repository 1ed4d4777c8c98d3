"""Which input of a task with several inputs is read next: fairly among those that the operator selects and that have something.

Inputs are the bits of a mask; the first one is bit 0. Does not know data.
Source: Flink InputSelection, MultipleInputSelectionHandler; an operator that selects has `next_selection()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.model.errors import ConfigurationError, UserError
from penstock.runtime.task.input_status import InputStatus

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
