"""RedisStreamSource: reads entries of Redis streams by their ids, exactly once. Needs redis (`penstock[redis]`).

A stream is a split, and its position is the id of the last entry. No consumer group: checkpoints have the positions, so
Redis has nothing to keep. Source: Redis' XREAD and XINFO STREAM; Flink's KafkaSource for what is a position and an end.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np

from penstock.common.extras import extra
from penstock.common.serialization import DeserializationSchema
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.connectors.api.base import (
    AssignedSplits,
    Boundedness,
    EnumeratorContext,
    Fetched,
    ReaderContext,
    RefusedForGood,
    Source,
    SourceReader,
    SourceReaderBase,
    SplitBatch,
    SplitEnumerator,
    SplitReader,
)
from penstock.connectors.api.builder import MISSING, checked_schema
from penstock.connectors.api.messaging.records import NO_RECORDS
from penstock.connectors.redis.client import (
    RedisBuilder,
    RedisSettings,
    check_server,
    checked_name,
    clear_errors,
    connect,
)
from penstock.connectors.redis.entries import EntryReader, RowReader, ValueReader, checked_row_type
from penstock.engine.model.errors import ConfigurationError

# ---------------------------------------------------------------------- splits
# Splits of a RedisStreamSource: a stream with the id after which to continue; and the enumerator,
# which assigns them.


BEGINNING: Final = "0-0"
LATEST: Final = "$"
_MOST: Final = (1 << 64) - 1
_ID: Final = re.compile(r"(\d{1,20})(?:-(\d{1,20}))?")


@dataclass(frozen=True, slots=True)
class StreamSplit:
    """A stream. `after`: the id of the last entry read. `until`: that of the last one to read;
    None: no end.

    `has_begun`: an entry was read, so that those after `after` must not be missing. `count`: how
    many entries the stream had ever got up to `after`; None: unknown.
    """

    stream: str
    after: str
    until: str | None = None
    has_begun: bool = False
    count: int | None = None


def key_of(entry_id: str) -> tuple[int, int]:
    """The id in its order."""
    ms, _, sequence = entry_id.partition("-")
    return int(ms), int(sequence or 0)


def parsed_id(where: str, entry_id: object) -> str:
    """The id with both of its parts. Raises: ConfigurationError."""
    found = _ID.fullmatch(entry_id) if isinstance(entry_id, str) else None
    if found is None or max(int(one or 0) for one in found.groups()) > _MOST:
        raise ConfigurationError(
            f'{where}: got {entry_id!r}, expected the id of an entry, such as "1526919030474-55".'
        )
    return f"{int(found[1])}-{int(found[2] or 0)}"


def before_ms(where: str, epoch_ms: object) -> str:
    """The last id before this time. Raises: ConfigurationError."""
    if isinstance(epoch_ms, bool) or not isinstance(epoch_ms, int) or not 0 <= epoch_ms <= _MOST:
        raise ConfigurationError(f"{where}: expected epoch ms, 0 or more, got {epoch_ms!r}.")
    return BEGINNING if not epoch_ms else f"{epoch_ms - 1}-{_MOST}"


class StreamsEnumerator(AssignedSplits):
    """Gives stream i to subtask i modulo the parallelism."""

    def __init__(self, context: EnumeratorContext, settings: _Settings) -> None:
        super().__init__(context, is_bounded=settings.is_bounded)
        self.settings = settings
        self._streams = settings.streams
        self._starting = settings.starting
        self._known: set[str] = set()

    def start(self) -> None:
        """Finds the positions of streams that no checkpoint has."""
        new = [name for name in self._streams if name not in self._known]
        last = self._last_ids(new) if self._is_bounded or self._starting == LATEST else {}
        splits = []
        for name in new:
            after = last[name] if self._starting == LATEST else self._starting
            splits.append(StreamSplit(name, after, last[name] if self._is_bounded else None))
        self._known.update(new)
        self._spread(splits)

    def snapshot_state(self) -> Any:
        return {"left": self.left(), "known": sorted(self._known)}

    def restore_state(self, state: Any) -> None:
        self._known = set(state["known"])
        self._spread([one for one in state["left"] if one.stream in self._streams])

    def _spread(self, splits: Sequence[StreamSplit]) -> None:
        for split in splits:
            self.give(self._streams.index(split.stream), split)

    def _last_ids(self, streams: Sequence[str]) -> dict[str, str]:
        """The id of the last entry of each stream, also if it was deleted; of one that is not there the beginning."""
        where = "RedisStreamSource on the driver"
        redis = extra("redis", "redis", where)
        client = connect(self.settings, where)
        found = {}
        try:
            for name in streams:
                with clear_errors(self.settings, where):
                    try:
                        found[name] = client.xinfo_stream(name)["last-generated-id"].decode()
                    except redis.exceptions.ResponseError as error:
                        if "no such key" not in str(error):
                            raise
                        found[name] = BEGINNING
        finally:
            client.close()
        return found


# ---------------------------------------------------------------------- source


_LOG: Final = logging.getLogger(__name__)
_ROWS: Final = 1000
_BLOCK_MS: Final = 100  # whoever closes the reader waits for that
_PAUSE_S: Final = 0.1
_NAME: Final = "RedisStreamSource"


@dataclass(frozen=True, slots=True)
class _Settings(RedisSettings):
    streams: tuple[str, ...] = ()
    entries: EntryReader = MISSING
    starting: str = BEGINNING
    is_bounded: bool = False
    fails_on_loss: bool = True


class RedisStreamSource(Source):
    """Reads Redis streams from front to back. Not in PyFlink. Build it with `RedisStreamSource.builder()`.

    A record's timestamp is the time in its entry's id, in epoch ms.
    """

    def __init__(self, settings: _Settings) -> None:
        """Use the builder."""
        self.settings = settings

    def __repr__(self) -> str:
        return f"{_NAME}({self.settings}, {', '.join(self.settings.streams)})"

    @staticmethod
    def builder() -> RedisStreamSource.Builder:
        return RedisStreamSource.Builder()

    class Builder(RedisBuilder):
        """Builds a RedisStreamSource; the setters return the builder."""

        name = _NAME
        begin = _Settings

        def set_streams(self, *names: str) -> Self:
            """Set the keys of the streams. One that is not there yet is waited for."""
            for name in names:
                checked_name(f"{_NAME}.set_streams", name)
            if len(set(names)) < len(names):
                raise ConfigurationError(f"{_NAME}.set_streams: a name is there twice: {names}.")
            return self._with(streams=names)

        def set_value_deserializer(
            self, schema: DeserializationSchema, field: str = "value"
        ) -> Self:
            """Set the schema that makes a record of one field's value; None of it: no record."""
            checked_schema(self._call("set_value_deserializer"), schema, DeserializationSchema)
            return self._with(entries=ValueReader(field, schema))

        def set_row_type(self, row_type: RowTypeInfo) -> Self:
            """Have records be Rows with the entry's fields of these names, read from text by their types."""
            return self._with(
                entries=RowReader(checked_row_type(f"{_NAME}.set_row_type", row_type))
            )

        def set_starting_id(self, entry_id: str) -> Self:
            """Begin after this entry, such as "1526919030474-55". By default with the first one
            that is there.
            """
            return self._with(starting=parsed_id(f"{_NAME}.set_starting_id", entry_id))

        def set_starting_timestamp(self, epoch_ms: int) -> Self:
            """Begin with the first entry of this time or later."""
            return self._with(starting=before_ms(f"{_NAME}.set_starting_timestamp", epoch_ms))

        def set_starting_latest(self) -> Self:
            """Begin with the entries that come after the start of the job. The driver must reach the server."""
            return self._with(starting=LATEST)

        def set_bounded(self) -> Self:
            """End after the last entry that is there when the job starts. The driver must reach the
            server.
            """
            return self._with(is_bounded=True)

        def set_fail_on_missing_entries(self, fails: bool) -> Self:
            """Set whether entries that were deleted or trimmed before they were read end the job;
            by default they do.

            If not, a warning is logged. Servers before Redis 7 do not report that.
            """
            return self._with(fails_on_loss=fails)

        def build(self) -> RedisStreamSource:
            """Return the source. Raises ConfigurationError: something is missing."""
            settings = self._complete(
                streams='set_streams("orders")',
                entries="set_value_deserializer(schema) or set_row_type(type)",
            )
            return RedisStreamSource(settings)

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.of(is_bounded=self.settings.is_bounded)

    @property
    def produced_type(self) -> TypeInformation:
        return self.settings.entries.produced_type

    def validate(self) -> None:
        """Check client, login and streams. Raises ConfigurationError.

        A server that the driver does not reach is no error here.
        """
        check_server(self.settings, self.settings.streams, f"{_NAME} on the driver")

    def create_enumerator(self, context: EnumeratorContext) -> SplitEnumerator:
        settings = self.settings
        return StreamsEnumerator(context, settings)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        where = f"{_NAME}, subtask {context.subtask()}"
        return RedisReader(context, self.settings, where)


class RedisReader(SourceReaderBase):
    """Reads its streams side by side."""

    def __init__(self, context: ReaderContext, settings: _Settings, where: str) -> None:
        super().__init__(context)
        self.settings = settings
        self._where = where

    def create_split_reader(self) -> SplitReader:
        return _StreamsReader(self.settings, self._where)

    def split_id(self, split: StreamSplit) -> Hashable:
        return split.stream

    def add_splits(self, splits: Sequence[Any]) -> None:
        """Streams that the program does not name any more are dropped."""
        named = [split for split in splits if split.stream in self.settings.streams]
        for split in splits:
            if split not in named:
                _LOG.warning("source=redis dropped=%r: the program does not name it", split.stream)
        if named:
            super().add_splits(named)


class _StreamsReader(SplitReader):
    """One connection for all streams of a subtask, one round trip for a batch of each.

    What is read and what the server says about the stream come from one transaction, so that an entry that was trimmed before it was read
    is seen.
    """

    def __init__(self, settings: _Settings, where: str) -> None:
        self.settings = settings
        self._where = where
        self._client = connect(settings, where)
        self._splits: dict[str, StreamSplit] = {}
        self._paused: set[str] = set()
        self._warned: set[str] = set()
        self._woken = threading.Event()

    def add_splits(self, splits: Sequence[Any]) -> None:
        self._splits.update((split.stream, split) for split in splits)

    def pause_or_resume_splits(self, to_pause: Sequence[Any], to_resume: Sequence[Any]) -> None:
        self._paused |= set(to_pause)
        self._paused -= set(to_resume)

    def fetch(self) -> Fetched:
        self._woken.clear()
        wanted = [split for name, split in self._splits.items() if name not in self._paused]
        batches, finished = [], []
        with clear_errors(self.settings, self._where):
            for split, (info, entries) in zip(wanted, self._read(wanted), strict=True):
                batch, is_over = self._taken(split, info, entries)
                if batch is not None:
                    batches.append(batch)
                if is_over:
                    finished.append(split.stream)
                    del self._splits[split.stream]
            if not batches and not finished:
                self._wait(wanted)
        return Fetched(batches, finished)

    def wake_up(self) -> None:
        self._woken.set()

    def close(self) -> None:
        self._client.close()

    def _read(self, splits: Sequence[StreamSplit]) -> list[tuple[Any, list[Any]]]:
        """What the server says about each stream, None if there is none, and its next entries."""
        if not splits:
            return []
        pipeline = self._client.pipeline(transaction=True)
        for split in splits:
            pipeline.xinfo_stream(split.stream)
            pipeline.xread({split.stream: split.after}, count=_ROWS)
        answers = pipeline.execute(raise_on_error=False)
        found = []
        for info, read in zip(answers[::2], answers[1::2], strict=True):
            if isinstance(read, Exception):
                raise read
            is_there = not isinstance(info, Exception)
            if not is_there and "no such key" not in str(info):
                raise info
            found.append((info if is_there else None, read[0][1] if read else []))
        return found

    def _taken(
        self, split: StreamSplit, info: Any, entries: list[Any]
    ) -> tuple[SplitBatch | None, bool]:
        """The batch of these entries, and whether the split is read to its end."""
        if info is not None and split.has_begun and (up_to := _lost(split, info)):
            self._report_losses(split, up_to)
        end = None if split.until is None else key_of(split.until)
        is_over = end is not None and (not entries or key_of(split.after) >= end)
        if end is not None and entries and key_of(entries[-1][0].decode()) >= end:
            entries = [one for one in entries if key_of(one[0].decode()) <= end]
            is_over = True
        if not entries:
            return None, is_over
        ids = [one[0].decode() for one in entries]
        count = None if info is None else _count_after(split, info, ids)
        moved = replace(split, after=ids[-1], has_begun=True, count=count)
        self._splits[split.stream] = moved
        # An entry that was deleted inside of a stream has no fields.
        fields = [one[1] or {} for one in entries]
        self.bytes_read += sum(
            len(name) + len(value) for entry in fields for name, value in entry.items()
        )
        stamps = np.array([min(key_of(one)[0], (1 << 63) - 1) for one in ids], np.int64)
        batch = self.settings.entries.batch(
            fields, stamps, lambda number: f"the entry {ids[number]} of {split.stream!r}"
        )
        return SplitBatch(NO_RECORDS if batch is None else batch, split.stream, moved), is_over

    def _report_losses(self, split: StreamSplit, up_to: str) -> None:
        """Raises: RefusedForGood, unless the source may go on without them."""
        text = (
            f"{self._where}: entries of the stream {split.stream!r} on "
            f"{self.settings} after {split.after}, some of them up to {up_to}, were "
            "deleted or trimmed before they were read"
        )
        if self.settings.fails_on_loss:
            raise RefusedForGood(
                f"{text}. Keep more of the stream (MAXLEN of XADD), and begin anew; or set "
                "set_fail_on_missing_entries(False) on the source to go on without them."
            )
        if split.stream not in self._warned:
            self._warned.add(split.stream)
            _LOG.warning("%s; the job continues without them", text)

    def _wait(self, splits: Sequence[StreamSplit]) -> None:
        """Until there is something to read. What comes is read by the next call, together with its surroundings."""
        if not splits:
            self._woken.wait(_PAUSE_S)
        elif not self._woken.is_set():
            self._client.xread({one.stream: one.after for one in splits}, count=1, block=_BLOCK_MS)


def _lost(split: StreamSplit, info: Any) -> str | None:
    """Return up to which id entries after the position are gone; None: none of them. A server
    before Redis 7 does not report that.
    """
    if "entries-added" not in info:
        return None
    deleted, first = (
        info[name].decode() for name in ("max-deleted-entry-id", "recorded-first-entry-id")
    )
    if key_of(deleted) > key_of(split.after):
        return str(deleted)
    # Trimming leaves no trace but the numbers: entry n of all that were ever added is the first one that is left.
    added, length = info["entries-added"], info["length"]
    if split.count is None or (length and key_of(deleted) >= key_of(first)):
        return None
    is_lost = added - length > split.count and (not length or key_of(first) > key_of(split.after))
    return str(first if length else info["last-generated-id"].decode()) if is_lost else None


def _count_after(split: StreamSplit, info: Any, ids: Sequence[str]) -> int | None:
    """Return how many entries the stream had ever got up to the last of these, which were read
    after the split's position.
    """
    added = info.get("entries-added")
    if added is None or info["last-generated-id"].decode() == ids[-1]:
        return None if added is None else int(added)
    if split.count is not None:
        return split.count + len(ids)
    deleted, first = (
        info[name].decode() for name in ("max-deleted-entry-id", "recorded-first-entry-id")
    )
    if ids[0] == first and key_of(deleted) < key_of(first):
        return int(added) - int(info["length"]) + len(ids)
    return None
