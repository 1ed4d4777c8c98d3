"""The result of processing input, and what the mailbox loop does next. Source: Flink DataInputStatus, StreamTask.processInput."""

from __future__ import annotations

from enum import StrEnum


class InputStatus(StrEnum):
    """END_OF_DATA: ended by draining. STOPPED: ended without draining. END_OF_INPUT: nothing will ever come."""

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
