"""Lines from a TCP server. For trying things out: nothing is read again after a failure.

Source: Flink SocketTextStreamFunction; differs: the socket is polled without blocking, so that the
task's thread stays free.
"""

from __future__ import annotations

import codecs
import socket
from collections.abc import Sequence
from typing import Any, Final

from penstock.common.typeinfo import TypeInformation, Types
from penstock.datastream.connectors.base import (
    Boundedness,
    EnumeratorContext,
    QueueEnumerator,
    ReaderContext,
    ReaderStatus,
    Source,
    SourceReader,
    SplitBatch,
    SplitFinished,
)
from penstock.model.errors import ConfigurationError
from penstock.runtime.elements import RowBatch
from penstock.runtime.source import Polled

CHUNK_BYTES: Final = 65_536
POLL_MS: Final = 2
CONNECT_TIMEOUT_S: Final = 10.0
MAX_PORT: Final = 65_535


class SocketTextSource(Source):
    """Use `env.socket_text_stream`. Ends when the server closes the connection."""

    def __init__(self, host: str, port: int, delimiter: str = "\n") -> None:
        if not 0 < port <= MAX_PORT:
            raise ConfigurationError(f"port must be in [1, {MAX_PORT}], got {port}.")
        if not delimiter:
            raise ConfigurationError("delimiter must be a non-empty string.")
        self._host = host
        self._port = port
        self._delimiter = delimiter

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return Types.STRING()

    def create_enumerator(self, context: EnumeratorContext) -> QueueEnumerator:
        return QueueEnumerator(context, [(self._host, self._port)])

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _SocketReader(context, self._delimiter)


class _SocketReader(SourceReader):
    def __init__(self, context: ReaderContext, delimiter: str) -> None:
        self._context = context
        self._delimiter = delimiter
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._socket: socket.socket | None = None
        self._address: Any = None
        self._no_more = False
        self._rest = ""

    def start(self) -> None:
        self._context.send_split_request()

    def add_splits(self, splits: Sequence[Any]) -> None:
        self._address = splits[0]

    def notify_no_more_splits(self) -> None:
        self._no_more = True

    def poll_next(self) -> Polled:
        if self._address is None:
            return ReaderStatus.END_OF_INPUT if self._no_more else ReaderStatus.NOTHING_AVAILABLE
        if self._socket is None:
            self._socket = socket.create_connection(self._address, CONNECT_TIMEOUT_S)
            self._socket.setblocking(False)
        try:
            data = self._socket.recv(CHUNK_BYTES)
        except BlockingIOError:
            self._context.wake_at(self._context.monotonic_ms() + POLL_MS)
            return ReaderStatus.NOTHING_AVAILABLE
        return self._received(data, self._address)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _received(self, data: bytes, split_id: Any) -> Polled:
        lines = self._lines(data)
        if not data:
            # The server closed; asking once more brings the notice that there is no other split.
            self._address = None
            self._context.send_split_request()
        if lines:
            return SplitBatch(RowBatch(lines), split_id)
        if not data:
            return SplitFinished(split_id)
        self._context.wake()
        return ReaderStatus.NOTHING_AVAILABLE

    def _lines(self, data: bytes) -> list[str]:
        """Complete lines; at the end also the last one without its delimiter."""
        text = self._rest + self._decoder.decode(data, final=not data)
        *lines, self._rest = text.split(self._delimiter)
        if not data and self._rest:
            lines.append(self._rest)
        if self._delimiter == "\n":
            lines = [line.removesuffix("\r") for line in lines]
        return lines
