"""One timer for the deadlines of all unfinished checkpoints. Knows no checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.machines.checkpoints.gateway import Emit
from penstock.model.messages.job import SetTimer

EXPIRY_TIMER: Final = "checkpoint-expiry"


class ExpiryTimer:
    """Sets the timer again whenever the first deadline changes."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._at_ms: int | None = None

    def watch(self, deadlines_ms: Iterable[int]) -> None:
        """`deadlines_ms`: of all unfinished checkpoints."""
        first = min(deadlines_ms, default=None)
        if first is not None and first != self._at_ms:
            self._at_ms = first
            self._emit(SetTimer(EXPIRY_TIMER, first))

    def fired(self) -> None:
        """The timer has fired."""
        self._at_ms = None
