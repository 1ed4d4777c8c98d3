"""FileSink: part files on a local or mounted directory, visible when the job commits.

Source: Flink FileSink, FileWriterBucket, BucketAssigner, RollingPolicy; differs: part files are written under hidden names, and the
committer renames them: at once for the whole job or, with checkpoints, those that each checkpoint covers; every checkpoint rolls.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from penstock.common.serialization import BulkWriter, BulkWriterFactory, Encoder
from penstock.common.setting_checks import check_kind
from penstock.datastream.connectors.base import (
    Accepts,
    Committer,
    Sink,
    SinkWriter,
    StreamTransformer,
    SupportsPreprocessing,
    WriterContext,
)
from penstock.datastream.connectors.files.buckets import BucketAssigner
from penstock.datastream.connectors.files.compaction import (
    Compaction,
    FileCompactor,
    FileCompactStrategy,
    Part,
)
from penstock.datastream.connectors.files.sink_names import (
    IN_PROGRESS,
    PENDING,
    in_progress,
    leftovers,
    unique_name,
)
from penstock.datastream.formats.file_listing import local_path
from penstock.model.errors import ConfigurationError, ExternalError
from penstock.runtime.elements import Batch, RowBatch
from penstock.runtime.interruption import uninterruptible
from penstock.runtime.sink import SendFigures

DEFAULT_PART_BYTES: Final = 128 * 1024 * 1024
DEFAULT_INTERVAL_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class OutputFileConfig:
    """Sets the names of finished files: `<prefix>-<unique>-<n><suffix>`."""

    part_prefix: str = "part"
    part_suffix: str = ""

    def get_part_prefix(self) -> str:
        return self.part_prefix

    def get_part_suffix(self) -> str:
        return self.part_suffix

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        """Return a builder."""
        return OutputFileConfig.OutputFileConfigBuilder()

    class OutputFileConfigBuilder:
        """Builds an OutputFileConfig."""

        def __init__(self) -> None:
            self._config = OutputFileConfig()

        def with_part_prefix(self, prefix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            self._config = replace(self._config, part_prefix=_file_name(prefix, "prefix"))
            return self

        def with_part_suffix(self, suffix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            self._config = replace(self._config, part_suffix=_file_name(suffix, "suffix"))
            return self

        def build(self) -> OutputFileConfig:
            return self._config


@dataclass(frozen=True, slots=True)
class RollingPolicy:
    """Sets when a part file is closed and another one started; 0 switches a condition off."""

    part_bytes: int = 0
    rollover_ms: int = 0
    inactivity_ms: int = 0

    @staticmethod
    def default_rolling_policy(
        part_size: int = DEFAULT_PART_BYTES,
        rollover_interval: int = DEFAULT_INTERVAL_MS,
        inactivity_interval: int = DEFAULT_INTERVAL_MS,
    ) -> DefaultRollingPolicy:
        """Return a policy that rolls by size, age and inactivity, checked when records arrive.

        Args:
            part_size: the largest size of a file in bytes.
            rollover_interval: the greatest age of a file in ms.
            inactivity_interval: the longest time without a record in ms.
        """
        for value in (part_size, rollover_interval, inactivity_interval):
            if value < 1:
                raise ConfigurationError(
                    f"rolling policy: sizes and intervals are >= 1, got {value}."
                )
        return DefaultRollingPolicy(part_size, rollover_interval, inactivity_interval)

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        """Return a policy with one file per subtask and bucket for each checkpoint."""
        return OnCheckpointRollingPolicy()

    def wants_roll(self, size: int, age_ms: float, idle_ms: float) -> bool:
        return bool(
            (self.part_bytes and size >= self.part_bytes)
            or (self.rollover_ms and age_ms >= self.rollover_ms)
            or (self.inactivity_ms and idle_ms >= self.inactivity_ms)
        )


class DefaultRollingPolicy(RollingPolicy):
    """Rolls by size, age and inactivity; see `RollingPolicy.default_rolling_policy`."""

    __slots__ = ()


class OnCheckpointRollingPolicy(RollingPolicy):
    """Rolls at each checkpoint; see `RollingPolicy.on_checkpoint_rolling_policy`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _SinkSettings:
    """The settings that the builder collected. Exactly one of `encoder` and `bulk` is set."""

    base_path: str
    encoder: Encoder | None
    bulk: BulkWriterFactory | None
    token: str
    buckets: BucketAssigner
    rolling: RollingPolicy
    names: OutputFileConfig
    compaction: tuple[FileCompactStrategy, FileCompactor] | None = None


class FileSink(Sink, SupportsPreprocessing):
    """Writes files. Build it: `FileSink.for_row_format(path, encoder).build()`."""

    def __init__(self, settings: _SinkSettings) -> None:
        self._settings = settings
        self.accepts = Accepts.ROWS if settings.bulk is None else settings.bulk.accepts
        self.is_converting = settings.bulk is None

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> FileSink.RowFormatBuilder:
        """Return a builder of a sink that encodes value by value."""
        check_kind("for_row_format", encoder, Encoder, "Encoder.simple_string_encoder()")
        return FileSink.RowFormatBuilder(base_path, encoder, None)

    @staticmethod
    def for_bulk_format(
        base_path: str, writer_factory: BulkWriterFactory
    ) -> FileSink.BulkFormatBuilder:
        """Return a builder of a sink that writes whole batches, as in Parquet."""
        example = "ParquetBulkWriters.for_row_type(row_type)"
        check_kind("for_bulk_format", writer_factory, BulkWriterFactory, example)
        return FileSink.BulkFormatBuilder(base_path, None, writer_factory)

    class BaseBuilder:
        """Builds a FileSink; the setters return the builder."""

        def __init__(
            self, base_path: str, encoder: Encoder | None, bulk: BulkWriterFactory | None
        ) -> None:
            rolling = RollingPolicy.default_rolling_policy() if bulk is None else RollingPolicy()
            self._settings = _SinkSettings(
                base_path=local_path(str(base_path)),
                encoder=encoder,
                bulk=bulk,
                token=uuid.uuid4().hex[:8],
                buckets=BucketAssigner.date_time_bucket_assigner(),
                rolling=rolling,
                names=OutputFileConfig(),
            )

        def with_bucket_check_interval(self, interval: int) -> FileSink.BaseBuilder:
            """Accept an interval, and ignore it: the rolling policy is checked with every batch."""
            return self

        def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> FileSink.BaseBuilder:
            """Set what chooses the directory; by default one per hour."""
            example = "BucketAssigner.base_path_bucket_assigner()"
            check_kind("with_bucket_assigner", bucket_assigner, BucketAssigner, example)
            self._settings = replace(self._settings, buckets=bucket_assigner)
            return self

        def with_output_file_config(
            self, output_file_config: OutputFileConfig
        ) -> FileSink.BaseBuilder:
            """Set prefix and suffix of the files."""
            example = "OutputFileConfig.builder().build()"
            check_kind("with_output_file_config", output_file_config, OutputFileConfig, example)
            self._settings = replace(self._settings, names=output_file_config)
            return self

        def with_rolling_policy(self, rolling_policy: RollingPolicy) -> FileSink.BaseBuilder:
            """Set when a part file is closed and another one started."""
            example = "RollingPolicy.default_rolling_policy()"
            check_kind("with_rolling_policy", rolling_policy, RollingPolicy, example)
            self._settings = replace(self._settings, rolling=rolling_policy)
            return self

        def enable_compact(
            self, strategy: FileCompactStrategy, compactor: FileCompactor
        ) -> FileSink.BaseBuilder:
            """Merge a subtask's part files as the strategy says; until then they are hidden."""
            bulk = self._settings.bulk
            if bulk is not None and compactor.concatenates and not bulk.can_be_concatenated:
                raise ConfigurationError(
                    f"FileSink: files of {type(bulk).__name__} are damaged when they are "
                    "concatenated. Make the parts larger with a longer checkpoint interval, or "
                    "write a row format."
                )
            self._settings = replace(self._settings, compaction=(strategy, compactor))
            return self

        def disable_compact(self) -> FileSink.BaseBuilder:
            """Make part files visible that wait, in a restored checkpoint, for compaction."""
            self._settings = replace(self._settings, compaction=None)
            return self

        def build(self) -> FileSink:
            """Return the sink."""
            return FileSink(self._settings)

    class RowFormatBuilder(BaseBuilder):
        """Builds a sink that rolls by the default policy."""

    class BulkFormatBuilder(BaseBuilder):
        """Builds a sink that rolls at each checkpoint."""

    def validate(self) -> None:
        base = Path(self._settings.base_path)
        try:
            base.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"FileSink: cannot make the directory {str(base)!r}: {error}. Give a directory "
                "that every machine of the job can write."
            ) from error
        if not os.access(base, os.W_OK):
            raise ConfigurationError(f"FileSink: the directory {str(base)!r} is not writable.")

    def get_transformer(self) -> StreamTransformer | None:
        """Return None: the writers compact their files themselves."""
        return None

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _FileWriter(self._settings, context)

    def create_committer(self) -> Committer:
        return _FileCommitter(self._settings)


class _PartFile:
    """One file being written."""

    def __init__(
        self, file: BinaryIO, paths: tuple[Path, Path], settings: _SinkSettings, input_type: Any
    ) -> None:
        """`paths`: the hidden and the final one."""
        self.hidden, self.final = paths
        self._file = file
        self._encode = _encoding(settings, file, input_type)
        self._opened_s = self._written_s = time.monotonic()

    def write(self, data: Batch | bytes) -> None:
        if isinstance(data, bytes):
            self._file.write(data)
        else:
            self._encode.write(data)
        self._written_s = time.monotonic()

    def is_due(self, policy: RollingPolicy) -> bool:
        now = time.monotonic()
        age_ms = (now - self._opened_s) * 1000
        return policy.wants_roll(self._file.tell(), age_ms, (now - self._written_s) * 1000)

    def finish(self) -> Part:
        """Make the bytes durable."""
        self._encode.finish()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return Part(str(self.hidden), str(self.final))

    def discard(self, *, is_kept: bool = False) -> None:
        self._file.close()
        if not is_kept:
            self.hidden.unlink(missing_ok=True)


class _FileWriter:
    """Writer of one subtask."""

    def __init__(self, settings: _SinkSettings, context: WriterContext) -> None:
        self._settings = settings
        self._input_type = context.input_type
        self._mark = f"{settings.token}.s{context.subtask}"
        self._attempt_prefix = context.attempt_prefix
        self._open: dict[str, _PartFile] = {}
        self._finished: list[Part] = []
        self._compaction = Compaction(settings.compaction)
        self._parts = 0
        self.sent = SendFigures()
        self._writer = f"{context.attempt}-{uuid.uuid4().hex[:8]}"
        self._unique = unique_name(context, f"{self._mark}.{self._writer}")
        if not context.may_have_rivals:
            for leftover in leftovers(Path(settings.base_path), settings.token, context):
                leftover.unlink(missing_ok=True)

    def write(self, batch: Batch, watermark_ms: int) -> None:
        self._write(batch)

    def convert(self, batch: Batch) -> bytes:
        assert self._settings.encoder is not None, "a bulk format converts nothing"
        assert isinstance(batch, RowBatch)
        return self._settings.encoder.encode(batch.values, self._input_type)

    def write_converted(self, converted: bytes, watermark_ms: int) -> None:
        self._write(converted)

    @uninterruptible()
    def _write(self, data: Batch | bytes) -> None:
        policy, bucket = self._settings.rolling, self._settings.buckets.bucket_at(time.time())
        part = self._open.get(bucket)
        if part is not None and part.is_due(policy):
            self._finish(bucket)
            part = None
        if part is None:
            part = self._open[bucket] = self._new_part(bucket)
        part.write(data)
        if part.is_due(policy):
            self._finish(bucket)

    @uninterruptible()
    def prepare_commit(self) -> Sequence[object]:
        self.end_input()
        return [part.committable for part in self._prepared(lambda part: part)]

    @uninterruptible()
    def prepare_checkpoint(self, checkpoint_id: int) -> Sequence[object]:
        """Renames finished parts to hidden names with the checkpoint's number.

        A job that restores an earlier checkpoint can then tell which parts will never be committed.
        """

        def named(part: Part) -> Part:
            renamed = f"{part.hidden.removesuffix(IN_PROGRESS)}.c{checkpoint_id}{PENDING}"
            Path(part.hidden).replace(renamed)
            return replace(part, hidden=renamed)

        return [part.committable for part in self._prepared(named)]

    def snapshot_state(self) -> Sequence[object]:
        """The parts that wait to be compacted."""
        return self._compaction.snapshot_state()

    def restore_state(self, state: Sequence[object]) -> None:
        self._compaction.restore_state(state)

    @uninterruptible()
    def end_input(self) -> None:
        self._compaction.end_input()

    @uninterruptible()
    def close(self) -> None:
        """Removes the files that were not prepared: a new attempt writes them again."""
        for part in self._open.values():
            part.discard()
        self._open.clear()
        for finished in self._finished:
            Path(finished.hidden).unlink(missing_ok=True)
        self._finished.clear()

    def _finish(self, bucket: str) -> None:
        # The order matters: if a cancel interrupts this, close() still finds the file in `_open`.
        self._finished.append(self._open[bucket].finish())
        del self._open[bucket]
        self.sent.bytes += Path(self._finished[-1].hidden).stat().st_size

    def _prepared(self, named: Callable[[Part], Part]) -> list[Part]:
        """The parts that become visible next; the others wait to be compacted.

        `named` gives a hidden file the name that it keeps until the commit.
        """
        for bucket in list(self._open):
            self._finish(bucket)
        finished, self._finished = self._finished, []
        for part in finished:
            self._compaction.add(named(part))
        ready = []
        for group in self._compaction.take_due():
            made = self._compaction.compacted(group, *self._names(group.directory, "compacted-"))
            ready.append(named(made) if made.replaces else made)
        return [*ready, *self._compaction.take_plain()]

    def _new_part(self, bucket: str) -> _PartFile:
        paths = self._names(Path(self._settings.base_path) / bucket)
        return _PartFile(self._create(paths[0]), paths, self._settings, self._input_type)

    def _create(self, hidden: Path) -> BinaryIO:
        hidden.parent.mkdir(parents=True, exist_ok=True)
        return hidden.open("wb")

    def _names(self, directory: Path, kind: str = "") -> tuple[Path, Path]:
        """The hidden and the final path of the next file."""
        names, number = self._settings.names, self._parts
        self._parts += 1
        hidden = f".{self._attempt_prefix}.{self._mark}.{number}.{self._writer}{IN_PROGRESS}"
        final = f"{kind}{names.part_prefix}-{self._unique}-{number}{names.part_suffix}"
        return directory / hidden, directory / final


class _FileCommitter(Committer):
    """Renames hidden files to their final names; a file with its final name was renamed by an earlier try."""

    def __init__(self, settings: _SinkSettings) -> None:
        self._base = Path(settings.base_path)
        self._token = settings.token

    def commit(self, committables: Sequence[object]) -> None:
        """Makes the parts visible. Raises: ExternalError: a part is gone, or another file has its name; then no part is renamed."""
        parts = [Part.of(one) for one in committables]
        pairs = [(Path(part.hidden), Path(part.final)) for part in parts]
        for hidden, final in pairs:
            if final.exists() and hidden.exists():
                raise ExternalError(
                    f"FileSink: {final} exists already and was not written by this run, which has "
                    f"{hidden} for that name. Another run with the same pipeline.fixed-job-id may "
                    "have written it: give each run its own id or directory."
                )
        for hidden, final in pairs:
            if hidden.exists():
                hidden.replace(final)
            elif not final.exists():
                raise ExternalError(
                    f"FileSink: neither {hidden} nor {final} exists, so the part cannot be "
                    "committed. Check that the directory is the same on every machine, and that "
                    "nothing else removes files in it."
                )
        for part in parts:
            for replaced in part.replaces:
                Path(replaced).unlink(missing_ok=True)

    def abort(self, job_prefix: str) -> None:
        for leftover in in_progress(self._base, job_prefix, self._token):
            leftover.unlink(missing_ok=True)


class _Encoding(Protocol):
    def write(self, batch: Batch) -> None: ...
    def finish(self) -> None: ...


class _RowEncoding:
    def __init__(self, encoder: Encoder, file: BinaryIO, input_type: Any) -> None:
        self._encoder = encoder
        self._file = file
        self._type = input_type

    def write(self, batch: Batch) -> None:
        assert isinstance(batch, RowBatch)
        self._file.write(self._encoder.encode(batch.values, self._type))

    def finish(self) -> None:
        return


def _encoding(settings: _SinkSettings, file: BinaryIO, input_type: Any) -> _Encoding | BulkWriter:
    if settings.bulk is not None:
        return settings.bulk.create(file, input_type)
    assert settings.encoder is not None
    return _RowEncoding(settings.encoder, file, input_type)


def _file_name(text: str, what: str) -> str:
    if "/" in text or "\0" in text:
        raise ConfigurationError(f"part {what} {text!r} must not contain '/' or a zero byte.")
    return text
