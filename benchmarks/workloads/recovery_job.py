"""The job of `recovery`: what its TaskManagers load, and nothing else, for a new one loads it before it begins."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.datastream.connectors import Committer, Sink, WriterContext
from penstock.engine.runtime.elements import Batch

KEYS = 1000


def pair_of(number: int) -> tuple[int, int]:
    return number % KEYS, 1


class MarkingSink(Sink):
    """Leaves the times of the first record of each attempt, and of its first commit, in files of `folder`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def create_writer(self, context: WriterContext) -> Any:
        return _MarkingWriter(f"{self._folder}/{{}}-{context.subtask}-{context.attempt}")

    def create_committer(self) -> Committer:
        return _MarkingCommitter()


class _MarkingWriter:
    def __init__(self, place: str) -> None:
        self._place = place
        self._records = 0

    def write(self, batch: Batch, watermark_ms: int) -> None:
        if not self._records:
            _mark(self._place.format("written"))
        self._records += len(batch)

    def prepare_commit(self) -> Sequence[object]:
        return [self._place.format("committed")] if self._records else []

    def close(self) -> None:
        """Nothing is open."""


class _MarkingCommitter(Committer):
    def commit(self, committables: Sequence[Any]) -> None:
        for place in committables:
            if not os.path.exists(place):
                _mark(place)

    def abort(self, job_prefix: str) -> None:
        """Marks of failed attempts are no harm."""


def _mark(place: str) -> None:
    """CLOCK_MONOTONIC, which all processes of one machine share; there at once or not at all."""
    hidden = f"{place}.{os.getpid()}.tmp"
    Path(hidden).write_text(str(time.monotonic_ns()), encoding="utf-8")
    Path(hidden).replace(place)
