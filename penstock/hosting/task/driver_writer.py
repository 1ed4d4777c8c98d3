"""Streams from a task to the driver: print and collect. At most `MAX_IN_FLIGHT` frames may be
unanswered.

So a slow console, or a slow reader of results, slows the job down, and memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.hosting.shipping.pickling import dumps_records
from penstock.model.graph.chain import ChainedOperator
from penstock.model.ids import AttemptId
from penstock.model.messages import DriverData
from penstock.runtime.codecs.convert import enforce, to_rows
from penstock.runtime.elements import Batch, CheckpointBarrier, ColumnBatch, Element, RowBatch
from penstock.runtime.task.user_errors import user_code_error

MAX_IN_FLIGHT: Final = 8
_ROWS_PER_FRAME: Final = 4096


class DriverWriter:
    """An output of the chain. Used on the mailbox thread; `on_credit` comes as a mail."""

    def __init__(
        self,
        stream: str,
        attempt_id: AttemptId,
        element_type: Any,
        send: Callable[[DriverData], None],
        producer: ChainedOperator,
    ) -> None:
        self.stream = stream
        self._producer = producer
        self._attempt_id = attempt_id
        self._type = element_type
        self._send = send
        self._pending: list[Any] = []
        self._in_flight = 0
        self._checkpoint_id = -1
        self.records_out = 0

    def write(self, element: Element) -> None:
        if isinstance(element, CheckpointBarrier):
            self.flush()  # Rows must leave before the checkpoint that covers them is acknowledged.
            self._checkpoint_id = element.checkpoint_id
        if not isinstance(element, (RowBatch, ColumnBatch)):
            return  # The driver needs no watermarks.
        try:
            element = self._as_rows(element)
        except (Exception, SystemExit) as error:
            # sys.exit() in user code counts as a failure of that code.
            raise user_code_error(self._producer, None, error) from error
        self._pending.extend(element.values)
        self.records_out += len(element.values)
        if len(self._pending) >= _ROWS_PER_FRAME:
            self.flush()

    def _as_rows(self, batch: Batch) -> RowBatch:
        if isinstance(batch, ColumnBatch):
            return to_rows(batch, self._type)
        return batch if self._type is None else enforce(batch, self._type)

    def flush(self) -> None:
        if not self._pending:
            return
        try:
            payload = dumps_records(self._pending)
        except (Exception, SystemExit) as error:
            raise user_code_error(self._producer, None, error) from error
        self._in_flight += 1
        records, behind = len(self._pending), self._checkpoint_id
        self._send(DriverData(self.stream, self._attempt_id, records, payload, behind))
        self._pending = []

    def finish(self) -> None:
        self.flush()

    def on_credit(self, frames: int) -> None:
        self._in_flight -= frames

    @property
    def is_available(self) -> bool:
        return self._in_flight < MAX_IN_FLIGHT
