"""CachedDataStream: a bounded stream; the first job that computes its records keeps them for later jobs.

The records are kept as files in a directory that driver and tasks share. They are deleted with the environment, at the
latest when the driver ends. The files are pickles next to the checkpoints, which are pickles too: they are read only
where no other user can have changed them. Records count only when their job has FINISHED. Until then, and when the
files are gone, other jobs compute the records themselves.
Source: pyflink.datastream.data_stream.CachedDataStream, Flink CacheTransformation; differs: a bounded job in runtime
mode STREAMING keeps the records, too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, NoReturn

from penstock.common.serialization import BulkWriter, BulkWriterFactory
from penstock.connectors.files.kept_sink import kept_sink
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.datastream.building.program import Upstream
from penstock.datastream.building.stream_plumbing import StreamPlumbing
from penstock.datastream.data_stream.data_stream import DataStream
from penstock.datastream.functions.type_variables import T
from penstock.engine.hosting.os.private_files import open_checked
from penstock.engine.hosting.shipping.pickling import dumps_records, loads_records
from penstock.engine.model.errors import ExternalError, GraphError
from penstock.engine.model.program import JobControl
from penstock.engine.model.states import JobStatus
from penstock.engine.model.types import is_pickled
from penstock.engine.runtime import operators as ops
from penstock.engine.runtime.elements import Batch
from penstock.engine.runtime.operator import Accepts
from penstock.formats.file_format import BulkFormat, FilePiece

LENGTH_BYTES: Final = 8


class CachedDataStream(DataStream[T]):
    """A bounded stream whose records are kept, as `cache()` returns it.

    Settings such as name and parallelism belong on the operator before it, as in PyFlink.
    """

    def __init__(self, plumbing: StreamPlumbing, kept: KeptRecords) -> None:
        super().__init__(plumbing)
        self._kept = kept

    def cache(self) -> CachedDataStream[T]:
        """Return the stream itself."""
        return self

    def invalidate(self) -> None:
        """Forget the records; the next job computes and keeps them again."""
        self._kept.invalidate()

    def _node(self, method: str) -> NoReturn:
        raise GraphError(
            f"{method}() on a CachedDataStream: it is no operator. Call {method}() on the operator "
            "before cache() or after it."
        )


class KeptRecords:
    """The files of one cached stream; a `program.Cache`."""

    def __init__(self, sink_id: int) -> None:
        self.sink_id = sink_id
        self._folder: str | None = None
        self._job: JobControl | None = None

    def open(self, folder: str) -> None:
        """Sets the directory where the next job keeps its records."""
        self._folder, self._job = folder, None

    def computed_by(self, job: JobControl) -> None:
        self._job = job

    def source(self) -> FileSource | None:
        is_there = self._folder is not None and os.path.isdir(self._folder)
        if not is_there or self._job is None or self._job.status() is not JobStatus.FINISHED:
            return None
        assert self._folder is not None
        return FileSource.for_bulk_file_format(_KeptFormat(), self._folder).build()

    def sink(self) -> FileSink | None:
        if self._folder is None or self._job is not None:
            return None
        return kept_sink(self._folder, _KeptWriters())

    def invalidate(self) -> None:
        """Deletes the files. Those of a running job stay until the driver ends."""
        folder, job = self._folder, self._job
        self._folder = self._job = None
        if folder is not None and (job is None or job.status().is_terminal):
            shutil.rmtree(folder, ignore_errors=True)


def cached(stream: DataStream[T]) -> CachedDataStream[T]:
    """Adds a node for the cached records of the stream."""
    plumbing = stream.plumbing
    program = plumbing.program
    declared = None if is_pickled(stream.get_type()) else stream.get_type()
    node = program.add_cache(ops.CollectOperator(), plumbing.upstreams, declared, KeptRecords)
    kept = program.caches[node.node_id]
    assert isinstance(kept, KeptRecords)
    from_cache = StreamPlumbing(plumbing.environment, (Upstream(node.node_id),), declared)
    return CachedDataStream(from_cache, kept)


class _KeptWriters(BulkWriterFactory):
    accepts = Accepts.ANY

    def create(self, file: BinaryIO, value_type: Any) -> BulkWriter:
        return _KeptWriter(file)


class _KeptWriter:
    """Writes batches as they come, each after its length."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, batch: Batch) -> None:
        data = dumps_records(batch)
        self._file.write(len(data).to_bytes(LENGTH_BYTES, "big"))
        self._file.write(data)

    def finish(self) -> None:
        return


class _KeptFormat(BulkFormat):
    def pieces(self, path: str, split_bytes: int) -> Iterator[FilePiece]:
        yield FilePiece(path, 0, None, os.path.getsize(path))

    def read(self, piece: FilePiece) -> Iterator[Batch]:
        with os.fdopen(open_checked(piece.path), "rb") as file:
            while head := file.read(LENGTH_BYTES):
                length = int.from_bytes(head, "big")
                data = file.read(length) if len(head) == LENGTH_BYTES else b""
                if len(head) < LENGTH_BYTES or len(data) < length:
                    raise ExternalError(
                        f"the kept records of a cached stream in {piece.path} are cut off at byte "
                        f"{file.tell()}. Check whether the disk was "
                        "full, call invalidate() on the stream, and run the job again."
                    )
                batch: Batch = loads_records(data)
                yield batch
