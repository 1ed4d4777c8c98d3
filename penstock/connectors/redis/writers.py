"""The writers of a RedisStreamSink, and its committer.

At least once: a batch is sent in a pipeline, and is there before `write` returns. Exactly once: entries are in the
checkpoint until it is complete; then a script appends them and sets a mark that names the checkpoint, both or neither.
A commit that finds its mark appends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from penstock.connectors.api.base import Batch, Committer, RowBatch, WriterContext
from penstock.connectors.redis.client import RedisAddress, checked_name, connect, told
from penstock.connectors.redis.entries import EntryWriter, Flat
from penstock.engine.model.errors import ExternalError
from penstock.engine.runtime.sink import SendFigures

_ENTRIES: Final = 1000
_BYTES: Final = 1 << 20
MARKS: Final = "penstock:committed:"
# Keys: mark, stream. Arguments: seconds of the mark, most entries (0: no bound), then for each entry how many texts follow.
_APPEND: Final = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local at, count = 3, 0
while at <= #ARGV do
  local last = at + tonumber(ARGV[at])
  if ARGV[2] == '0' then
    redis.call('XADD', KEYS[2], '*', unpack(ARGV, at + 1, last))
  else
    redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[2], '*', unpack(ARGV, at + 1, last))
  end
  at, count = last + 1, count + 1
end
redis.call('SET', KEYS[1], count, 'EX', ARGV[1])
return count
"""

Converted: TypeAlias = list[tuple[str, Flat]]


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """`stream`: the key, or the function that gives it. `most_entries`: 0: no bound."""

    address: RedisAddress
    stream: str | Callable[[Any], str]
    entries: EntryWriter
    most_entries: int
    retention_s: int


@dataclass(frozen=True, slots=True)
class StagedEntries:
    """In checkpoints: entries for one stream that are committed together. `mark`: names their commit."""

    mark: str
    stream: str
    entries: tuple[Flat, ...]


class _EntryWriter:
    """What both writers do: make entries of records."""

    def __init__(self, settings: WriteSettings) -> None:
        self.settings = settings
        self.sent = SendFigures()

    def write(self, batch: Batch, watermark_ms: int) -> None:
        self.write_converted(self.convert(batch), watermark_ms)

    def convert(self, batch: Batch) -> Converted:
        assert isinstance(batch, RowBatch), "a RedisStreamSink accepts rows"
        stream, fields = self.settings.stream, self.settings.entries.fields
        if isinstance(stream, str):
            return [(stream, fields(value)) for value in batch.values]
        where = "RedisStreamSink: the function of set_stream"
        return [(checked_name(where, stream(value)), fields(value)) for value in batch.values]

    def write_converted(self, converted: Converted, watermark_ms: int) -> None:
        raise NotImplementedError


class DirectWriter(_EntryWriter):
    """Appends each batch at once. What was sent when the connection broke is sent again."""

    def __init__(self, settings: WriteSettings, where: str) -> None:
        super().__init__(settings)
        self._where = where
        self._client = connect(settings.address, where)

    def write_converted(self, converted: Converted, watermark_ms: int) -> None:
        most = self.settings.most_entries
        bound = ("MAXLEN", "~", most) if most else ()
        for piece in _pieces(converted):
            pipeline = self._client.pipeline(transaction=False)
            for stream, flat in piece:
                pipeline.execute_command("XADD", stream, *bound, "*", *flat)
            try:
                with told(self.settings.address, self._where):
                    pipeline.execute()
            except ExternalError:
                self.sent.errors += len(piece)
                raise
            self.sent.bytes += sum(map(_size, piece))

    def prepare_commit(self) -> Sequence[object]:
        return ()

    def close(self) -> None:
        self._client.close()


class StagingWriter(_EntryWriter):
    """Keeps entries for the next checkpoint."""

    def __init__(self, settings: WriteSettings, context: WriterContext, where: str) -> None:
        super().__init__(settings)
        self._attempt = f"{context.operator_id}:{context.attempt_prefix}-{context.subtask}"
        self._by_stream: dict[str, Converted] = {}
        self._number = 0

    def write_converted(self, converted: Converted, watermark_ms: int) -> None:
        for one in converted:
            self._by_stream.setdefault(one[0], []).append(one)
        self.sent.bytes += sum(map(_size, converted))

    def prepare_checkpoint(self, checkpoint_id: int) -> Sequence[object]:
        return self._take(str(checkpoint_id))

    def prepare_commit(self) -> Sequence[object]:
        return self._take("end")

    def close(self) -> None:
        self._by_stream.clear()

    def _take(self, checkpoint: str) -> list[StagedEntries]:
        staged = []
        by_stream, self._by_stream = self._by_stream, {}
        for stream, entries in by_stream.items():
            for piece in _pieces(entries):
                self._number += 1
                mark = f"{MARKS}{stream}:{self._attempt}:{checkpoint}:{self._number}"
                staged.append(StagedEntries(mark, stream, tuple(flat for _, flat in piece)))
        return staged


class MarkingCommitter(Committer):
    """Appends staged entries, each piece once."""

    def __init__(self, settings: WriteSettings) -> None:
        self._settings = settings
        self._client: Any = None

    def commit(self, committables: Sequence[object]) -> None:
        settings, where = self._settings, "RedisStreamSink, commit"
        if self._client is None:
            self._client = connect(settings.address, where)
        append = self._client.register_script(_APPEND)
        for staged in committables:
            assert isinstance(staged, StagedEntries)
            texts: list[Any] = [settings.retention_s, settings.most_entries]
            for flat in staged.entries:
                texts += (len(flat), *flat)
            with told(settings.address, where):
                append(keys=[staged.mark, staged.stream], args=texts)

    def abort(self, job_prefix: str) -> None:
        """Nothing is in Redis before its commit."""

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def _size(one: tuple[str, Flat]) -> int:
    return sum(map(len, one[1]))


def _pieces(converted: Iterable[tuple[str, Flat]]) -> Iterator[Converted]:
    piece: Converted = []
    size = 0
    for one in converted:
        grown = size + _size(one)
        if piece and (len(piece) == _ENTRIES or grown > _BYTES):
            yield piece
            piece, grown = [], _size(one)
        piece.append(one)
        size = grown
    if piece:
        yield piece
