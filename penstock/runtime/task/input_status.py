"""What processing input came to, and what follows for the mailbox loop. Source: Flink DataInputStatus, StreamTask.processInput."""

from __future__ import annotations

from enum import StrEnum


class InputStatus(StrEnum):
    """END_OF_DATA: ended by draining; STOPPED: without; END_OF_INPUT: nothing will ever come."""

    MORE_AVAILABLE = "MORE_AVAILABLE"
    NOTHING_AVAILABLE = "NOTHING_AVAILABLE"
    END_OF_DATA = "END_OF_DATA"
    STOPPED = "STOPPED"
    END_OF_INPUT = "END_OF_INPUT"


class NextMove(StrEnum):
    """What the default action does after a turn."""

    RETURN = "return"
    SUSPEND_UNTIL_INPUT = "suspend_until_input"
    SUSPEND_UNTIL_OUTPUT = "suspend_until_output"
    SUSPEND_UNTIL_INPUT_AND_OUTPUT = "suspend_until_input_and_output"
    ALL_ACTIONS_COMPLETED = "all_actions_completed"


def next_move(status: InputStatus, *, is_output_available: bool) -> NextMove:
    """The end of data is followed by another turn; an output without room comes before an empty input."""
    if status is InputStatus.END_OF_INPUT:
        return NextMove.ALL_ACTIONS_COMPLETED
    if status is InputStatus.NOTHING_AVAILABLE:
        if is_output_available:
            return NextMove.SUSPEND_UNTIL_INPUT
        return NextMove.SUSPEND_UNTIL_INPUT_AND_OUTPUT
    return NextMove.RETURN if is_output_available else NextMove.SUSPEND_UNTIL_OUTPUT
