"""The reader of a RedisStreamSource: one connection for all streams of a subtask, one round trip for a batch of each.

What is read and what the server says about the stream come from one transaction, so that an entry that was trimmed
before it was read is seen.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from penstock.common.extras import extra
from penstock.connectors.api.base import (
    Fetched,
    ReaderContext,
    RefusedForGood,
    SourceReaderBase,
    SplitBatch,
    SplitReader,
)
from penstock.connectors.api.messaging.records import NO_RECORDS
from penstock.connectors.redis.client import RedisAddress, connect, told
from penstock.connectors.redis.entries import EntryReader
from penstock.connectors.redis.splits import StreamSplit, key_of

_LOG: Final = logging.getLogger(__name__)
_ROWS: Final = 1000
_BLOCK_MS: Final = 100  # whoever closes the reader waits for that
_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """`where`: names the subtask in errors."""

    address: RedisAddress
    streams: tuple[str, ...]
    entries: EntryReader
    fails_on_loss: bool
    where: str


class RedisReader(SourceReaderBase):
    """Reads its streams side by side."""

    def __init__(self, context: ReaderContext, settings: ReadSettings) -> None:
        super().__init__(context)
        self._settings = settings

    def create_split_reader(self) -> SplitReader:
        return _StreamsReader(self._settings)

    def split_id(self, split: StreamSplit) -> Hashable:
        return split.stream

    def add_splits(self, splits: Sequence[Any]) -> None:
        """Streams that the program does not name any more are dropped."""
        named = [split for split in splits if split.stream in self._settings.streams]
        for split in splits:
            if split not in named:
                _LOG.warning("source=redis dropped=%r: the program does not name it", split.stream)
        if named:
            super().add_splits(named)


class _StreamsReader(SplitReader):
    def __init__(self, settings: ReadSettings) -> None:
        self._settings = settings
        self._client = connect(settings.address, settings.where)
        self._errors = extra("redis", "redis", settings.where).exceptions
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
        with told(self._settings.address, self._settings.where):
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
            self._tell_of_losses(split, up_to)
        end = None if split.until is None else key_of(split.until)
        is_over = end is not None and (not entries or key_of(split.after) >= end)
        if end is not None and entries and key_of(entries[-1][0].decode()) >= end:
            entries = [one for one in entries if key_of(one[0].decode()) <= end]
            is_over = True
        if not entries:
            return None, is_over
        ids = [one[0].decode() for one in entries]
        count = None if info is None else _count_behind(split, info, ids)
        behind = replace(split, after=ids[-1], has_begun=True, count=count)
        self._splits[split.stream] = behind
        # An entry that was deleted inside of a stream has no fields.
        fields = [one[1] or {} for one in entries]
        self.bytes_read += sum(
            len(name) + len(value) for entry in fields for name, value in entry.items()
        )
        stamps = np.array([min(key_of(one)[0], (1 << 63) - 1) for one in ids], np.int64)
        batch = self._settings.entries.batch(
            fields, stamps, lambda number: f"the entry {ids[number]} of {split.stream!r}"
        )
        return SplitBatch(NO_RECORDS if batch is None else batch, split.stream, behind), is_over

    def _tell_of_losses(self, split: StreamSplit, up_to: str) -> None:
        """Raises: RefusedForGood, unless the source may go on without them."""
        text = (
            f"{self._settings.where}: entries of the stream {split.stream!r} on "
            f"{self._settings.address} behind {split.after}, some of them up to {up_to}, were "
            "deleted or trimmed before they were read"
        )
        if self._settings.fails_on_loss:
            raise RefusedForGood(
                f"{text}. Keep more of the stream (MAXLEN of XADD), and begin anew; or set "
                "set_fail_on_missing_entries(False) on the source to go on without them."
            )
        if split.stream not in self._warned:
            self._warned.add(split.stream)
            _LOG.warning("%s; the job goes on without them", text)

    def _wait(self, splits: Sequence[StreamSplit]) -> None:
        """Until there is something to read. What comes is read by the next call, together with its surroundings."""
        if not splits:
            self._woken.wait(_PAUSE_S)
        elif not self._woken.is_set():
            self._client.xread({one.stream: one.after for one in splits}, count=1, block=_BLOCK_MS)


def _lost(split: StreamSplit, info: Any) -> str | None:
    """Up to which id entries behind the position are gone; None: none of them. A server before Redis 7 does not tell."""
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


def _count_behind(split: StreamSplit, info: Any, ids: Sequence[str]) -> int | None:
    """How many entries the stream had ever got up to the last of these, which were read behind the split's position."""
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
