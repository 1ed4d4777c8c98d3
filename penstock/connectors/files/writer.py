"""The writer of a FileSink's subtask: buckets, part files, and when they are closed. Does not know where parts lie.

Source: Flink FileWriter, FileWriterBucket.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Final

from penstock.common.serialization import BulkWriter
from penstock.connectors.files.compaction import Compaction
from penstock.connectors.files.parts import IN_PROGRESS, Part, PartOutput, PartStore
from penstock.connectors.files.settings import RollingPolicy, _SinkSettings
from penstock.engine.runtime.elements import Batch, RowBatch
from penstock.engine.runtime.interruption import uninterruptible
from penstock.engine.runtime.sink import SendFigures, WriterContext

MOST_OPEN: Final = 100
"""Files at once: each of them has buffers. One more, and the file that was written least recently is closed."""


class _PartFile:
    """One file being written."""

    def __init__(self, output: PartOutput, settings: _SinkSettings, input_type: Any) -> None:
        self.output = output
        self._encode: BulkWriter = (
            _EncodedRows(output.file)
            if settings.bulk is None
            else settings.bulk.create(output.file, input_type)
        )
        self._opened_s = self.written_s = time.monotonic()

    def write(self, data: Any) -> None:
        self._encode.write(data)
        self.written_s = time.monotonic()

    def is_due(self, policy: RollingPolicy) -> bool:
        now = time.monotonic()
        age_ms = (now - self._opened_s) * 1000
        size = self.output.file.tell()
        return policy.wants_roll(size, age_ms, (now - self.written_s) * 1000)

    def seal(self) -> int:
        self._encode.finish()
        return self.output.seal()


class FileWriter:
    """Writer of one subtask."""

    def __init__(self, settings: _SinkSettings, context: WriterContext, store: PartStore) -> None:
        self.settings = settings
        self._context = context
        self._store = store
        self._written_type = settings.buckets.written_type(context.input_type)
        self._mark = f"{settings.token}.s{context.subtask}"
        self._open: dict[str, _PartFile] = {}
        self._sealed: list[PartOutput] = []
        self._compaction = Compaction(settings.compaction, store)
        self._parts = 0
        self.sent = SendFigures()
        self._writer = f"{context.attempt}-{uuid.uuid4().hex[:8]}"
        self._prepared_for(context.restored_checkpoint_id or 0)
        if not context.is_batch:
            store.drop_leftovers(context)

    def write(self, batch: Batch, watermark_ms: int) -> None:
        self._write(self.convert(batch))

    def convert(self, batch: Batch) -> list[tuple[str, Any]]:
        assigned = self.settings.buckets.assigned(batch, time.time())
        return [(bucket, self._encoded(part)) for bucket, part in assigned]

    def _encoded(self, part: Batch) -> Any:
        settings = self.settings
        if settings.bulk is not None:
            return settings.bulk.converted(part, self._written_type)
        assert isinstance(part, RowBatch)
        assert settings.encoder is not None
        return settings.encoder.encode(part.values, self._written_type)

    def write_converted(self, converted: list[tuple[str, Any]], watermark_ms: int) -> None:
        self._write(converted)

    @uninterruptible()
    def _write(self, assigned: Sequence[tuple[str, Any]]) -> None:
        policy = self.settings.rolling
        for bucket, data in assigned:
            part = self._open.get(bucket)
            if part is not None and part.is_due(policy):
                self._seal(bucket)
                part = None
            if part is None:
                part = self._open[bucket] = self._new_part(bucket)
            part.write(data)
            if part.is_due(policy):
                self._seal(bucket)

    @uninterruptible()
    def prepare_commit(self) -> Sequence[object]:
        self.end_input()
        return [part.committable for part in self._prepared(lambda part: part)]

    @uninterruptible()
    def prepare_checkpoint(self, checkpoint_id: int) -> Sequence[object]:
        prepared = self._prepared(lambda part: self._store.kept(part, checkpoint_id))
        self._prepared_for(checkpoint_id)
        return [part.committable for part in prepared]

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
        self._discard(is_kept=False)

    def _discard(self, *, is_kept: bool) -> None:
        try:
            for output in [*(part.output for part in self._open.values()), *self._sealed]:
                output.discard(is_kept=is_kept)
        finally:
            self._open.clear()
            self._sealed.clear()
            self._store.close()

    def _prepared_for(self, checkpoint_id: int) -> None:
        mark = f"{self._mark}.{self._writer}"
        self._unique = self._store.unique_name(self._context, mark, checkpoint_id)

    def _seal(self, bucket: str) -> None:
        # The order matters: if a cancel interrupts this, close() still finds the file in `_open`.
        part = self._open[bucket]
        self.sent.bytes += part.seal()
        self._sealed.append(part.output)
        del self._open[bucket]

    def _prepared(self, named: Callable[[Part], Part]) -> list[Part]:
        """The parts that become visible next; the others wait to be compacted.

        `named` gives a hidden file the name that it keeps until the commit.
        """
        for bucket in list(self._open):
            self._seal(bucket)
        finished = [output.finish() for output in self._sealed]
        self._sealed.clear()
        for part in finished:
            self._compaction.add(named(part))
        ready = []
        for group in self._compaction.take_due():
            made = self._compaction.compacted(group, *self._names(group.folder, "compacted-"))
            ready.append(named(made) if made.replaces else made)
        return [*ready, *self._compaction.take_plain()]

    def _new_part(self, bucket: str) -> _PartFile:
        folder = f"{self._store.base}/{bucket}".rstrip("/")
        if len(self._open) >= MOST_OPEN:
            self._seal(min(self._open, key=lambda one: self._open[one].written_s))
        output = self._store.create(*self._names(folder))
        return _PartFile(output, self.settings, self._written_type)

    def _names(self, folder: str, kind: str = "") -> tuple[str, str]:
        """The hidden and the final path of the next file."""
        names, number = self.settings.names, self._parts
        self._parts += 1
        attempt = self._context.attempt_prefix
        hidden = f".{attempt}.{self._mark}.{number}.{self._writer}{IN_PROGRESS}"
        final = f"{kind}{names.part_prefix}-{self._unique}-{number}{names.part_suffix}"
        return f"{folder}/{hidden}", f"{folder}/{final}"


class _EncodedRows:
    """`BulkWriter` of what the encoder has encoded."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, batch: bytes) -> None:
        self._file.write(batch)

    def finish(self) -> None:
        return
