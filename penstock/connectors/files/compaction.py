"""Compaction: merges a FileSink's part files before they become visible. Each subtask compacts its own files.

A part that waits for compaction is a hidden file and belongs to checkpoints. The parts that a compacted file replaces
are removed only when that file is committed, so that a restore from an earlier checkpoint finds them.
Source: Flink FileCompactStrategy, CompactorOperator, ConcatFileCompactor, IdenticalFileCompactor; differs: parts of
different subtasks are not merged, and the writing subtask compacts, before the barrier.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Self

from penstock.connectors.api.builder import SettingsBuilder
from penstock.connectors.files.parts import Part, PartStore
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.formats.file_access import open_input


@dataclass(frozen=True, slots=True)
class FileCompactStrategy:
    """Sets when a bucket's part files are merged: at a number of checkpoints, or of bytes."""

    checkpoints: int | None = None
    size_threshold: int | None = None
    compact_threads: int = 1

    @staticmethod
    def builder() -> FileCompactStrategy.Builder:
        """Return a builder."""
        return FileCompactStrategy.Builder()

    class Builder(SettingsBuilder):
        """Builds a FileCompactStrategy; at least one of the two conditions is required."""

        def __init__(self) -> None:
            super().__init__(FileCompactStrategy())

        def build(self) -> FileCompactStrategy:
            """Return the strategy."""
            strategy: FileCompactStrategy = self.settings
            if strategy.checkpoints is None and strategy.size_threshold is None:
                raise ConfigurationError(
                    "FileCompactStrategy: at least one condition is needed: call enable_compaction_on_checkpoint or "
                    "set_size_threshold before build()."
                )
            return strategy

        def enable_compaction_on_checkpoint(self, num_checkpoints_before_compaction: int) -> Self:
            """Compact every `num_checkpoints_before_compaction` checkpoints."""
            return self._with_number(
                "enable_compaction_on_checkpoint", 1, checkpoints=num_checkpoints_before_compaction
            )

        def set_size_threshold(self, size_threshold: int) -> Self:
            """Compact when a bucket's parts have this many bytes, as checked at each checkpoint."""
            return self._with_number("set_size_threshold", 0, size_threshold=size_threshold)

        def set_num_compact_threads(self, num_compact_threads: int) -> Self:
            """Accept a number of threads, and ignore it: each subtask compacts its own files."""
            return self._with_number(
                "set_num_compact_threads", 1, compact_threads=num_compact_threads
            )


class FileCompactor(ABC):
    """Merges several files into one. For your own compactor, define `compact`."""

    concatenates = False
    """Whether it concatenates bytes, which damages files of some formats."""

    @abstractmethod
    def compact(self, files: Sequence[str], output: BinaryIO) -> None:
        """Write the content of `files` to `output`: paths, in object stores addresses, in the order of their writing."""

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> FileCompactor:
        """Return a compactor that concatenates files, with `file_delimiter` between them."""
        return _Concatenation(file_delimiter or b"")

    @staticmethod
    def identical_file_compactor() -> FileCompactor:
        """Return a compactor that keeps a file as it is, for strategies with one file at a time."""
        return _Identity()


class _Concatenation(FileCompactor):
    concatenates = True

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter

    def compact(self, files: Sequence[str], output: BinaryIO) -> None:
        for number, name in enumerate(files):
            if number:
                output.write(self._delimiter)
            with open_input(name) as file:
                shutil.copyfileobj(file, output)


class _Identity(FileCompactor):
    def compact(self, files: Sequence[str], output: BinaryIO) -> None:
        if len(files) != 1:
            raise ConfigurationError(
                f"identical_file_compactor takes one file, got {len(files)}: {list(files)[:3]}. "
                "Use concat_file_compactor, or set_size_threshold(0) with parts that roll at "
                "checkpoints only."
            )
        with open_input(files[0]) as file:
            shutil.copyfileobj(file, output)


@dataclass(slots=True)
class Group:
    """The parts of one bucket, and for how many checkpoints they have waited."""

    folder: str
    parts: list[Part] = field(default_factory=list)
    checkpoints: int = 0


class Compaction:
    """The parts of one writer that wait for compaction. Without a strategy no part waits."""

    def __init__(
        self, how: tuple[FileCompactStrategy, FileCompactor] | None, store: PartStore
    ) -> None:
        self._how = how
        self._store = store
        self._waiting: dict[str, Group] = {}
        self._plain: list[Part] = []
        self._has_ended = False

    def add(self, part: Part) -> None:
        if self._how is None:
            self._plain.append(part)
            return
        self._waiting.setdefault(part.folder, Group(part.folder)).parts.append(part)

    def end_input(self) -> None:
        """After this, all parts that wait are due."""
        self._has_ended = True

    def take_plain(self) -> list[Part]:
        """Takes the parts that are not to be compacted."""
        plain, self._plain = self._plain, []
        return plain

    def take_due(self) -> list[Group]:
        """Takes the groups that are due; called at each checkpoint, and at the end."""
        for group in self._waiting.values():
            group.checkpoints += 1
        due = [group for group in self._waiting.values() if self._is_due(group)]
        for group in due:
            del self._waiting[group.folder]
        return due

    def compacted(self, group: Group, hidden: str, final: str) -> Part:
        """Merges a group into one durable file.

        Raises: ExternalError: a part is gone; and any error of the compactor.
        """
        assert self._how is not None, "parts wait only if there is a compactor"
        names = [part.hidden for part in group.parts]
        if len(names) == 1:
            return Part(names[0], final)
        output = self._store.create(hidden, final)
        try:
            self._how[1].compact([self._store.readable(name) for name in names], output.file)
            output.seal()
        except FileNotFoundError as error:
            output.discard()
            raise ExternalError(
                f"FileSink: the part {error.filename or error} is to be compacted, but it does not "
                "exist any more. Check that the directory is the same on every machine, and that "
                "nothing else removes files in it."
            ) from error
        except BaseException:
            output.discard()
            raise
        return replace(output.finish(), replaces=tuple(names))

    def snapshot_state(self) -> list[object]:
        return [
            (part.hidden, part.final, group.checkpoints)
            for group in self._waiting.values()
            for part in group.parts
        ]

    def restore_state(self, state: Sequence[object]) -> None:
        for one in state:
            assert isinstance(one, tuple), "a waiting part is stored as a tuple"
            hidden, final, checkpoints = one
            self.add(Part(hidden, final))
            group = self._waiting.get(Part(hidden, final).folder)
            if group is not None:
                group.checkpoints = max(group.checkpoints, checkpoints)

    def _is_due(self, group: Group) -> bool:
        assert self._how is not None, "parts wait only if there is a strategy"
        strategy = self._how[0]
        if self._has_ended:
            return True
        if strategy.checkpoints is not None and group.checkpoints >= strategy.checkpoints:
            return True
        limit = strategy.size_threshold
        return limit is not None and self._bytes(group.parts) >= limit

    def _bytes(self, parts: Sequence[Part]) -> int:
        return sum(self._store.size(part.hidden) for part in parts)
