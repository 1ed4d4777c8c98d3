"""When the first of the checkpoints under way has had its time: one timer for all of them. Knows no checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.machines.checkpoints.gateway import Emit
from penstock.model.messages.job import SetTimer

EXPIRY_TIMER: Final = "checkpoint-expiry"


class ExpiryTimer:
    """Asked for anew whenever the first deadline is another one."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._at_ms: int | None = None

    def watch(self, deadlines_ms: Iterable[int]) -> None:
        """`deadlines_ms`: of all that are under way."""
        first = min(deadlines_ms, default=None)
        if first is not None and first != self._at_ms:
            self._at_ms = first
            self._emit(SetTimer(EXPIRY_TIMER, first))

    def fired(self) -> None:
        """The timer did."""
        self._at_ms = None
