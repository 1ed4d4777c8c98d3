"""Bases of sinks that send records to another system: at once, or when a checkpoint is complete.

A subclass of `PieceSink` gives an `Outlet`, which knows the target system; the writers and the committer are here.
Source: Flink KafkaSink, PulsarSink, JdbcSink for direct and staging writers, AsyncSinkBase for batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from penstock.common.serialization import SerializationSchema
from penstock.connectors.api.base import (
    Accepts,
    Batch,
    Committer,
    DeliveryGuarantee,
    RowBatch,
    Sink,
    SinkWriter,
    WriterContext,
)
from penstock.engine.model.errors import ExternalError
from penstock.engine.runtime.sink import SendFigures

One = TypeVar("One")


def bodies_of(schema: SerializationSchema, values: Sequence[Any]) -> list[bytes]:
    """The bytes of each value. Raises: TypeError: the schema gave something else; what the schema raises."""
    bodies = schema.serialize_values(values)
    for body, value in zip(bodies, values, strict=True):
        if not isinstance(body, bytes):
            raise TypeError(
                f"{type(schema).__name__} gave {type(body).__name__} for {value!r:.200}; expected "
                "bytes"
            )
    return bodies


def pieces_of(
    converted: Iterable[One], size: Callable[[One], int], most: int, most_bytes: int
) -> Iterator[list[One]]:
    """The same in order, in pieces of `most` entries and `most_bytes`. An entry that is larger is a piece by itself."""
    piece: list[One] = []
    total = 0
    for one in converted:
        grown = total + size(one)
        if piece and (len(piece) == most or grown > most_bytes):
            yield piece
            piece, grown = [], size(one)
        piece.append(one)
        total = grown
    if piece:
        yield piece


def subtask_of(name: str, context: WriterContext) -> str:
    """Names a subtask of a sink in errors."""
    return f"{name}, subtask {context.subtask} of {context.parallelism}"


class RowsWriter(ABC):
    """A writer that converts rows in a step of its own. `sink_name`: for an error that only a bug can cause."""

    sink_name: str = "sink"

    def write(self, batch: Batch, watermark_ms: int) -> None:
        self.write_converted(self.convert(batch), watermark_ms)

    def convert(self, batch: Batch) -> Any:
        assert isinstance(batch, RowBatch), f"a {self.sink_name} accepts rows"
        return self.converted(batch.values)

    @abstractmethod
    def converted(self, values: Sequence[Any]) -> Any:
        """Convert records, and change nothing. Raises if one of them cannot be converted."""

    @abstractmethod
    def write_converted(self, converted: Any, watermark_ms: int) -> None: ...

    def prepare_commit(self) -> Sequence[object]:
        return ()


class StagingSink(Sink):
    """Stages records for a committer if it writes exactly once, and otherwise writes them directly. `settings` has a `guarantee`."""

    def __init__(self, settings: Any) -> None:
        """Use the builder. Raises ConfigurationError: a setting is missing, or two contradict each other."""
        self.settings = settings
        self._check()

    def _check(self) -> None:
        """Raises: ConfigurationError: a setting is missing, or two contradict each other."""

    @property
    def is_exactly_once(self) -> bool:
        return self.settings.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    @abstractmethod
    def staging_writer(self, context: WriterContext) -> SinkWriter: ...

    @abstractmethod
    def direct_writer(self, context: WriterContext) -> SinkWriter: ...

    @abstractmethod
    def committer(self) -> Committer:
        """The committer of the staged records."""

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return self.staging_writer(context) if self.is_exactly_once else self.direct_writer(context)

    def create_committer(self) -> Committer | None:
        return self.committer() if self.is_exactly_once else None


class Outlet(ABC, Generic[One]):
    """Makes entries of records, and sends them to the target system. A writer or a committer has one.

    `most`, `most_bytes`: of the entries that are sent together. `link`: what `connect` has made; None: nothing is sent, entries are staged.
    """

    most: ClassVar[int] = 1000
    most_bytes: ClassVar[int] = 1 << 20

    def __init__(self, settings: Any, where: str) -> None:
        """`where`: begins errors."""
        self.settings = settings
        self._where = where
        self.link: Any = None

    @abstractmethod
    def converted(self, values: Sequence[Any]) -> list[One]:
        """The entries of records, in order. Raises what a record is refused with."""

    @abstractmethod
    def size(self, one: One) -> int:
        """The bytes of an entry, as they are counted."""

    def pieces(self, converted: list[One]) -> Iterable[Sequence[One]]:
        """The entries that are sent together."""
        return pieces_of(converted, self.size, self.most, self.most_bytes)

    def pieces_to_stage(self, converted: list[One]) -> Iterable[Sequence[One]]:
        """The entries that are committed together."""
        return self.pieces(converted)

    @abstractmethod
    def connect(self) -> Any:
        """Make the link for `send` and `commit`."""

    @abstractmethod
    def send(self, piece: Sequence[One]) -> int:
        """Send a piece, and return its bytes when it has arrived. Raises: ExternalError."""

    @abstractmethod
    def staged(self, piece: Sequence[One], attempt: str, number: str) -> object:
        """What is in the checkpoint for a piece. `attempt`, `number`: name it, and no other."""

    @abstractmethod
    def commit(self, committables: Sequence[Any]) -> None:
        """Send staged pieces, of which any may have been sent before. Raises: ExternalError."""

    def close(self) -> None:
        """Release connections."""
        if self.link is not None:
            self.link.close()
            self.link = None


class PieceSink(StagingSink):
    """A sink with an outlet. `name`: begins errors."""

    accepts = Accepts.ROWS
    is_converting = True
    name: ClassVar[str]
    outlet: ClassVar[type[Outlet[Any]]]

    def direct_writer(self, context: WriterContext) -> SinkWriter:
        return DirectWriter(self._outlet_of(context), self.name)

    def staging_writer(self, context: WriterContext) -> SinkWriter:
        return StagingWriter(self._outlet_of(context), self.name, context)

    def committer(self) -> Committer:
        return OutletCommitter(self.outlet(self.settings, f"{self.name}, commit"))

    def _outlet_of(self, context: WriterContext) -> Outlet[Any]:
        return self.outlet(self.settings, subtask_of(self.name, context))


class _OutletWriter(RowsWriter, Generic[One]):
    def __init__(self, outlet: Outlet[One], sink_name: str) -> None:
        self.sent = SendFigures()
        self.outlet = outlet
        self.sink_name = sink_name

    def converted(self, values: Sequence[Any]) -> list[One]:
        return self.outlet.converted(values)


class DirectWriter(_OutletWriter[One]):
    """Sends each batch before `write` returns."""

    def __init__(self, outlet: Outlet[One], sink_name: str) -> None:
        super().__init__(outlet, sink_name)
        outlet.link = outlet.connect()

    def write_converted(self, converted: list[One], watermark_ms: int) -> None:
        for piece in self.outlet.pieces(converted):
            try:
                self.sent.bytes += self.outlet.send(piece)
            except ExternalError:
                self.sent.errors += len(piece)
                raise

    def close(self) -> None:
        self.outlet.close()


class StagingWriter(_OutletWriter[One]):
    """Keeps entries for the next checkpoint."""

    def __init__(self, outlet: Outlet[One], sink_name: str, context: WriterContext) -> None:
        super().__init__(outlet, sink_name)
        self._attempt = f"{context.operator_id}:{context.attempt_prefix}-{context.subtask}"
        self._waiting: list[One] = []
        self._number = 0

    def write_converted(self, converted: list[One], watermark_ms: int) -> None:
        self._waiting += converted
        self.sent.bytes += sum(map(self.outlet.size, converted))

    def prepare_checkpoint(self, checkpoint_id: int) -> Sequence[object]:
        return self._take(str(checkpoint_id))

    def prepare_commit(self) -> Sequence[object]:
        return self._take("end")

    def close(self) -> None:
        self._waiting.clear()

    def _take(self, checkpoint: str) -> list[object]:
        waiting, self._waiting = self._waiting, []
        staged = []
        for piece in self.outlet.pieces_to_stage(waiting):
            self._number += 1
            staged.append(self.outlet.staged(piece, self._attempt, f"{checkpoint}:{self._number}"))
        return staged


class OutletCommitter(Committer):
    """Sends staged pieces."""

    def __init__(self, outlet: Outlet[Any]) -> None:
        self._outlet = outlet

    def commit(self, committables: Sequence[object]) -> None:
        if self._outlet.link is None:
            self._outlet.link = self._outlet.connect()
        self._outlet.commit(committables)

    def abort(self, job_prefix: str) -> None:
        """Nothing is sent before its commit."""

    def close(self) -> None:
        self._outlet.close()
