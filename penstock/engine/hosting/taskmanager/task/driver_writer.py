"""Streams from a task to the driver: print and collect. At most `MAX_IN_FLIGHT` frames may be
unanswered.

So a slow console, or a slow reader of results, slows the job down, and memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.engine.hosting.network.wire.messages import MAX_MESSAGE
from penstock.engine.hosting.shipping.pickling import dumps_records
from penstock.engine.model.errors import UserCodeError
from penstock.engine.model.graph.chain import ChainedOperator
from penstock.engine.model.ids import AttemptId
from penstock.engine.model.messages import DriverData
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.runtime.codecs.convert import enforce, to_rows
from penstock.engine.runtime.elements import (
    Batch,
    CheckpointBarrier,
    ColumnBatch,
    Element,
    RowBatch,
)
from penstock.engine.runtime.task.user_errors import PASSED_ON, user_code_error

MAX_IN_FLIGHT: Final = 8
_ROWS_PER_FRAME: Final = 4096
_FRAME_BYTES: Final = 8 << 20
_MOST_BYTES: Final = MAX_MESSAGE - (1 << 20)
"""Of one record: it travels as one control message."""


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
        except PASSED_ON:
            raise
        except BaseException as error:
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
        rows, self._pending = self._pending, []
        if rows:
            self._send_rows(rows)

    def _send_rows(self, rows: list[Any]) -> None:
        """Send the rows as one frame, or as several if they are large."""
        try:
            payload = dumps_records(rows)
        except PASSED_ON:
            raise
        except BaseException as error:
            raise user_code_error(self._producer, None, error) from error
        if len(payload) > _FRAME_BYTES and len(rows) > 1:
            middle = len(rows) // 2
            self._send_rows(rows[:middle])
            self._send_rows(rows[middle:])
            return
        if len(payload) > _MOST_BYTES:
            raise UserCodeError(
                f"a record of {len(payload):,} bytes of '{self._producer.name}' (built at "
                f"{self._producer.defined_at}) is on its way to "
                f"the driver, which takes records of at most {_MOST_BYTES:,} bytes. Write such "
                "records to a sink, for example to files. "
                f"The record: {bounded_repr(rows[0])}"
            )
        self._in_flight += 1
        frame = DriverData(self.stream, self._attempt_id, len(rows), payload, self._checkpoint_id)
        self._send(frame)

    def finish(self) -> None:
        self.flush()

    def on_credit(self, frames: int) -> None:
        self._in_flight -= frames

    @property
    def row_limit(self) -> None:
        """Nothing limits it: no barrier waits behind what goes to the driver."""
        return None

    @property
    def is_available(self) -> bool:
        return self._in_flight < MAX_IN_FLIGHT
