"""Streams from a task to the driver: print and collect. Bounded: `MAX_IN_FLIGHT` frames without an answer.

A slow console or a slow reader of results so slows the job, and memory stays flat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.hosting.closures import dumps_records
from penstock.model.ids import AttemptId
from penstock.model.messages import DriverData
from penstock.runtime.convert import enforce, to_rows
from penstock.runtime.elements import ColumnBatch, Element, RowBatch

MAX_IN_FLIGHT: Final = 8
_ROWS_PER_FRAME: Final = 4096


class DriverWriter:
    """An output of the chain. Mailbox thread, `on_credit` too (as a mail)."""

    def __init__(
        self,
        stream: str,
        attempt_id: AttemptId,
        element_type: Any,
        send: Callable[[DriverData], None],
    ) -> None:
        self.stream = stream
        self._attempt_id = attempt_id
        self._type = element_type
        self._send = send
        self._pending: list[Any] = []
        self._in_flight = 0
        self.records_out = 0

    def write(self, element: Element) -> None:
        if isinstance(element, ColumnBatch):
            element = to_rows(element, self._type)
        elif not isinstance(element, RowBatch):
            return  # the driver needs no watermarks
        elif self._type is not None:
            element = enforce(element, self._type)
        self._pending.extend(element.values)
        self.records_out += len(element.values)
        if len(self._pending) >= _ROWS_PER_FRAME:
            self.flush()

    def flush(self) -> None:
        if not self._pending:
            return
        payload = dumps_records(self._pending)
        self._in_flight += 1
        self._send(DriverData(self.stream, self._attempt_id, len(self._pending), payload))
        self._pending = []

    def finish(self) -> None:
        self.flush()

    def on_credit(self, frames: int) -> None:
        self._in_flight -= frames

    @property
    def is_available(self) -> bool:
        return self._in_flight < MAX_IN_FLIGHT
