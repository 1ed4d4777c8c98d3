"""Lines from a TCP server, for experiments: nothing is read again after a failure.

Source: Flink SocketTextStreamFunction; differs: a FLIP-27 reader, which waits for the socket on a fetcher's thread.
"""

from __future__ import annotations

import codecs
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from penstock.common.typeinfo import TypeInformation, Types
from penstock.connectors.api.base import (
    Boundedness,
    EnumeratorContext,
    QueueEnumerator,
    ReaderContext,
    Source,
    SourceReader,
    SourceReaderBase,
    SplitBatch,
    SplitReader,
)
from penstock.datastream.building.program import caller_location
from penstock.engine.model.errors import ConfigurationError, ExternalError, UserCodeError
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.records.dead_letters import Malformed, MarkedRows
from penstock.engine.runtime.sources.contract import Fetched

CHUNK_BYTES: Final = 65_536
POLL_S: Final = 0.1
CONNECT_TIMEOUT_S: Final = 10.0
MAX_PORT: Final = 65_535
MOST_OF_LINE: Final = 16 << 20
"""Characters. A line that does not end would fill the memory."""
SHOWN: Final = 200


class SocketTextSource(Source):
    """The source of `env.socket_text_stream`. Ends when the server closes the connection."""

    boundedness = Boundedness.CONTINUOUS_UNBOUNDED
    gives_rows = True

    def __init__(self, host: str, port: int, delimiter: str = "\n") -> None:
        if not 0 < port <= MAX_PORT:
            raise ConfigurationError(
                f"socket_text_stream: port must be in [1, {MAX_PORT}], got {port}."
            )
        if not delimiter:
            raise ConfigurationError("socket_text_stream: delimiter must be a non-empty string.")
        self._host = host
        self._port = port
        self._delimiter = delimiter
        self._built_at = caller_location()

    @property
    def produced_type(self) -> TypeInformation:
        return Types.STRING()

    def create_enumerator(self, context: EnumeratorContext) -> QueueEnumerator:
        return QueueEnumerator(context, [(self._host, self._port)])

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _SocketReader(context, self._delimiter, self._built_at)


class _SocketReader(SourceReaderBase):
    def __init__(self, context: ReaderContext, delimiter: str, built_at: str) -> None:
        super().__init__(context)
        self._delimiter = delimiter
        self._built_at = built_at

    def create_split_reader(self) -> SplitReader:
        return LineReader(self._delimiter, self._built_at)


class LineReader(SplitReader):
    """Reads lines of one connection after the other. A split is a pair (host, port). `built_at`: for errors."""

    def __init__(self, delimiter: str, built_at: str = "") -> None:
        self._delimiter = delimiter
        self._built_at = built_at
        self._addresses: deque[tuple[str, int]] = deque()
        self._socket: socket.socket | None = None
        self._rest = ""
        self._is_skipping = False

    def add_splits(self, splits: Sequence[Any]) -> None:
        self._addresses.extend(splits)

    def fetch(self) -> Fetched:
        if self._socket is None:
            self._socket = self._connected(self._addresses[0])
        try:
            data = self._socket.recv(CHUNK_BYTES)
        except TimeoutError:
            return Fetched()
        lines = self._lines(data)
        split_id = self._addresses[0]
        rows = MarkedRows if any(type(line) is Malformed for line in lines) else RowBatch
        batches = [SplitBatch(rows(lines), split_id)] if lines else []
        if data:
            return Fetched(batches)
        self._disconnect()
        return Fetched(batches, [self._addresses.popleft()])

    def wake_up(self) -> None:
        """Nothing to do: a wait for data lasts at most POLL_S, and then orders are read."""

    def close(self) -> None:
        self._disconnect()

    def _connected(self, address: tuple[str, int]) -> socket.socket:
        try:
            connected = socket.create_connection(address, CONNECT_TIMEOUT_S)
        except OSError as error:
            raise ExternalError(
                f"socket_text_stream cannot connect to host {address[0]!r}, port {address[1]}: "
                f"{error}. Start a server there first, for example with `nc -lk {address[1]}`, or "
                "correct host and port.\n"
                f"  built at:    {self._built_at}"
            ) from None
        connected.settimeout(POLL_S)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._is_skipping = False
        return connected

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _lines(self, data: bytes) -> list[Any]:
        """The complete lines; at the end of the connection also a last line without delimiter. A `Malformed` for one that is too
        long.
        """
        text = self._rest + self._decoder.decode(data, final=not data)
        found: list[str]
        *found, self._rest = text.split(self._delimiter)
        if self._is_skipping and found:
            self._is_skipping = False
            found.pop(0)
        if not data and self._rest and not self._is_skipping:
            found.append(self._rest)
        if self._delimiter == "\n":
            found = [line.removesuffix("\r") for line in found]
        lines: list[Any] = found
        if self._is_skipping:
            self._rest = self._rest[-len(self._delimiter) :]
        elif len(self._rest) > MOST_OF_LINE:
            lines.append(self._too_long())
            self._is_skipping = True
        return lines

    def _too_long(self) -> Malformed:
        host, port = self._addresses[0]
        failure = UserCodeError(
            f"socket_text_stream: a line from host {host!r}, port {port}, has more than "
            f"{MOST_OF_LINE} characters. Check that the server ends its lines with "
            f'{self._delimiter!r}; to skip such lines, give the stream .on_error("skip").\n'
            f"  built at:    {self._built_at}"
        )
        return Malformed(self._rest[:SHOWN], failure, failure)
