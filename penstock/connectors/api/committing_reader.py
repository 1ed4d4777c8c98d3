"""A reader that tells its broker what was read, when the checkpoint that covers it is complete.

Source: Flink KafkaSourceReader, PulsarSourceReader.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping
from typing import Any, Final

from penstock.engine.runtime.sources.contract import ReaderContext, SplitBatch, SplitReader
from penstock.engine.runtime.sources.reader_base import SourceReaderBase

_NOTHING: Final[Mapping[Any, Any]] = {}


class CommittingSplitReader(SplitReader):
    """Reads splits on the fetcher's thread, and commits positions to the broker. Only that thread uses the client.

    `to_commit`: the positions by split for the next `commit`; any thread sets it.
    """

    to_commit: Mapping[Any, Any] = _NOTHING
    _told: Mapping[Any, Any] = _NOTHING

    def not_yet_told(self) -> Mapping[Any, Any]:
        """The positions of `to_commit`, if they were not returned before.

        The attribute is not emptied here, because the other thread may be setting it.
        """
        positions = self.to_commit
        if positions is self._told:
            return _NOTHING
        self._told = positions
        return positions

    @abstractmethod
    def commit(self) -> None:
        """Tells the broker the positions, without waiting.

        A failure does no harm: the job restarts from its checkpoints, not from these positions.
        """


class CommittingReader(SourceReaderBase):
    """Keeps the positions after the records that `poll_next` returned, also of splits that were read to their end."""

    def __init__(self, context: ReaderContext, *, commits: bool) -> None:
        super().__init__(context)
        self._commits = commits
        self._positions: dict[Hashable, Any] = {}
        self._to_commit: dict[int, dict[Hashable, Any]] = {}
        self._split_reader: CommittingSplitReader | None = None

    @abstractmethod
    def open_split_reader(self) -> CommittingSplitReader:
        """Opens the split reader; called once, with the first split."""

    @abstractmethod
    def position_behind(self, batch: SplitBatch) -> Any:
        """The position to commit once this batch was read; None: the position stays as it is."""

    def create_split_reader(self) -> SplitReader:
        self._split_reader = self.open_split_reader()
        return self._split_reader

    def note_read(self, read: SplitBatch) -> None:
        super().note_read(read)
        position = self.position_behind(read)
        if position is not None:
            self._positions[read.split_id] = position

    def before_checkpoint(self, checkpoint_id: int) -> None:
        if self._commits:
            self._to_commit[checkpoint_id] = dict(self._positions)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        done = [one for one in self._to_commit if one <= checkpoint_id]
        positions = self._to_commit[max(done)] if done else {}
        for one in done:
            del self._to_commit[one]
        if positions and self._split_reader is not None:
            self._split_reader.to_commit = positions
            self.run_on_fetcher(self._split_reader.commit)
