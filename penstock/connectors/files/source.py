"""FileSource: files, directories and globs on local or mounted file systems and in object stores.

Source: Flink FileSource, StaticFileSplitEnumerator, ContinuousFileSplitEnumerator; differs: `repeat` is an addition,
and a split is a group of pieces. Splits are handed out on request, in order.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Self

from penstock.common.time import Duration
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.connectors.api.base import (
    Boundedness,
    EnumeratorContext,
    PolledSplitReader,
    QueueEnumerator,
    ReaderContext,
    Source,
)
from penstock.connectors.api.builder import SettingsBuilder
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.setting_checks import check_whole
from penstock.engine.model.time import millis_of
from penstock.engine.runtime.elements import Batch
from penstock.formats.file_access import is_remote
from penstock.formats.file_format import (
    DEFAULT_SPLIT_BYTES,
    BulkFormat,
    FileFormat,
    FilePiece,
    FileSplit,
    FoundFile,
    group_bytes_for,
    grouped,
    list_files,
)
from penstock.formats.partition_folders import PartitionedFormat

REQUESTS_AT_ONCE: Final = 16
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _FileSettings:
    """The settings that the builder collected. `interval_ms` None: only the files that exist at the start are read."""

    file_format: FileFormat
    paths: tuple[str, ...]
    interval_ms: int | None = None
    times: int = 1
    split_bytes: int = DEFAULT_SPLIT_BYTES
    is_splittable: bool = True


class FileSource(Source):
    """Reads files. Build it: `FileSource.for_record_stream_format(format, *paths).build()`."""

    def __init__(self, settings: _FileSettings) -> None:
        self.settings = settings

    @staticmethod
    def for_record_stream_format(stream_format: FileFormat, *paths: str) -> FileSourceBuilder:
        """Return a builder of a source that reads the files of `paths`, record by record."""
        return FileSourceBuilder(stream_format, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: BulkFormat, *paths: str) -> FileSourceBuilder:
        """Return a builder of a source that reads the files of `paths` in batches, as Parquet."""
        return FileSourceBuilder(bulk_format, paths)

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.of(is_bounded=self.settings.interval_ms is None)

    @property
    def produced_type(self) -> TypeInformation | None:
        return self.settings.file_format.produced_type

    @property
    def parses_fields(self) -> bool:
        file_format = self.settings.file_format
        return file_format.reading(()) is not file_format

    def validate(self) -> None:
        list_files(self.settings.paths, may_be_empty=self.settings.interval_ms is not None)

    def create_enumerator(self, context: EnumeratorContext) -> QueueEnumerator:
        return _FileEnumerator(context, self.settings)

    def restore_enumerator(self, context: EnumeratorContext, state: Any) -> QueueEnumerator:
        enumerator = _FileEnumerator(context, self.settings)
        enumerator.restore(state)
        return enumerator

    def create_reader(self, context: ReaderContext) -> PolledSplitReader:
        return _FileReader(context, self.settings.file_format)


class FileSourceBuilder(SettingsBuilder):
    """Builds a FileSource; the setters return the builder."""

    def __init__(self, file_format: FileFormat, paths: tuple[str, ...]) -> None:
        if not isinstance(file_format, FileFormat):
            raise TypeError(
                f"FileSource takes a StreamFormat or BulkFormat, got {type(file_format).__name__}."
            )
        if not paths:
            raise ConfigurationError("FileSource needs at least one path.")
        super().__init__(_FileSettings(file_format, tuple(map(str, paths))))

    def monitor_continuously(self, discovery_interval: Duration) -> Self:
        """Look for new files at this interval, without end."""
        interval_ms = millis_of(discovery_interval)
        if interval_ms < 1:
            raise ConfigurationError(
                "FileSource: monitor_continuously needs an interval of at least 1 ms, got "
                f"{interval_ms} ms."
            )
        return self._with(interval_ms=interval_ms)

    def process_static_file_set(self) -> Self:
        """Read the files that are there at the start, then end (default)."""
        return self._with(interval_ms=None)

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> Self:
        """Set whether files may be split."""
        return self._with(is_splittable=file_enumerator.is_splittable)

    def set_split_assigner(self, split_assigner: FileSplitAssignerProvider) -> Self:
        """Accept an assigner, and ignore it: all machines read the same mounted files."""
        return self

    def with_partition_fields(self, row_type: RowTypeInfo) -> Self:
        """Give records the fields of their file's folders, as in `year=2026/month=11`. Not in PyFlink.

        Rows and columns get them after their own fields; a line becomes the field `value` of a Row.

        Args:
            row_type: names and types of the fields, such as Types.ROW_NAMED(["year", "month"], [Types.INT(), Types.INT()]). A
                folder `__HIVE_DEFAULT_PARTITION__` stands for None.
        """
        file_format = PartitionedFormat(self.settings.file_format, row_type)
        return self._with(file_format=file_format)

    def set_split_size(self, size_bytes: int) -> Self:
        """Set the largest size of a split in bytes. Not in PyFlink."""
        if size_bytes < 1:
            raise ConfigurationError(
                f"FileSource: the split size must be at least 1 byte, got {size_bytes}."
            )
        return self._with(split_bytes=size_bytes)

    def set_max_record_size(self, size_bytes: int) -> Self:
        """Set the most bytes of a line, or of a record of CSV, 64 MiB by default. One that has more is malformed. Not in PyFlink."""
        check_whole("FileSource: set_max_record_size", size_bytes, 1)
        return self._with(file_format=self.settings.file_format.limited_to(size_bytes))

    def repeat(self, times: int) -> Self:
        """Read all files this many times. Not in PyFlink."""
        if times < 1:
            raise ConfigurationError(f"FileSource: repeat: times must be at least 1, got {times}.")
        return self._with(times=times)

    def build(self) -> FileSource:
        """Return the source."""
        if self.settings.interval_ms is not None and self.settings.times > 1:
            raise ConfigurationError(
                "FileSource: repeat() reads a fixed set of files, so it cannot be used with "
                "monitor_continuously(). Leave one of the two out."
            )
        return FileSource(self.settings)


@dataclass(frozen=True, slots=True)
class FileEnumeratorProvider:
    """Sets whether files may be split."""

    is_splittable: bool

    @staticmethod
    def default_splittable_file_enumerator() -> FileEnumeratorProvider:
        """Return the setting that files may be split."""
        return FileEnumeratorProvider(is_splittable=True)

    @staticmethod
    def default_non_splittable_file_enumerator() -> FileEnumeratorProvider:
        """Return the setting that each file is one split."""
        return FileEnumeratorProvider(is_splittable=False)


@dataclass(frozen=True, slots=True)
class FileSplitAssignerProvider:
    """Names a way to assign splits, for programs that set it. It has no effect here."""

    @staticmethod
    def locality_aware_split_assigner() -> FileSplitAssignerProvider:
        """Return the setting."""
        return FileSplitAssignerProvider()


class _FileEnumerator(QueueEnumerator):
    """Lists the files at the start and, when it monitors, again at each interval."""

    def __init__(self, context: EnumeratorContext, settings: _FileSettings) -> None:
        super().__init__(context, (), is_final=settings.interval_ms is None)
        self._context = context
        self.settings = settings
        self._seen: set[str] = set()
        self._numbers = 0
        self._is_restored = False

    def restore(self, state: Any) -> None:
        """Continues with the splits that were not handed out; files that were seen are not read again."""
        self._seen = set(state["seen"])
        self._numbers = state["numbers"]
        self._is_restored = True
        self.add(state["splits"])

    def snapshot_state(self) -> Any:
        splits = super().snapshot_state()
        return {"splits": splits, "seen": sorted(self._seen), "numbers": self._numbers}

    def start(self) -> None:
        if not self._is_restored:
            self._discover()
        if self.settings.interval_ms is not None:
            self._context.call_periodically(self.settings.interval_ms, self._discover)

    def _discover(self) -> None:
        files = [one for one in self._listed() if one.name not in self._seen]
        times = self.settings.times
        group = group_bytes_for(
            sum(one.size for one in files) * times,
            self._context.parallelism(),
            self.settings.split_bytes,
        )
        splits = list(grouped(self._pieces(files, group) * times, self._numbers, group))
        self._seen.update(one.name for one in files)
        self._numbers += len(splits)
        self.add(splits)

    def _pieces(self, files: Sequence[FoundFile], most_bytes: int) -> list[FilePiece]:
        def pieces_of(one: FoundFile) -> list[FilePiece]:
            cut_at = most_bytes if self.settings.is_splittable else one.size
            return list(self.settings.file_format.pieces_of(one, max(1, cut_at)))

        if sum(is_remote(one.path) for one in files) < 2:
            return [piece for one in files for piece in pieces_of(one)]
        # Formats look into each file, and a server takes its time to answer.
        with ThreadPoolExecutor(REQUESTS_AT_ONCE, "file-enumerator") as pool:
            return [piece for pieces in pool.map(pieces_of, files) for piece in pieces]

    def _listed(self) -> list[FoundFile]:
        """The files now. A monitored directory may still be empty, or may just be being replaced, and a server may be away for a
        while.
        """
        is_monitoring = self.settings.interval_ms is not None
        try:
            return list_files(self.settings.paths, may_be_empty=is_monitoring)
        except (ConfigurationError, FileNotFoundError) as error:
            if not is_monitoring:
                raise
            _LOG.warning("enumerator=files discovery=FAILED cause=%s", error)
            return []


class _FileReader(PolledSplitReader):
    def __init__(self, context: ReaderContext, file_format: FileFormat) -> None:
        super().__init__(context)
        self._format = file_format

    def read_fields(self, names: Sequence[str]) -> None:
        self._format = self._format.reading(names)

    def read(self, split: Any) -> Iterator[Batch]:
        for piece in split.pieces:
            yield from self._format.read(piece)

    def split_id(self, split: FileSplit) -> int:
        return split.number
