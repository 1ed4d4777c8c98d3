"""DataFrames on the driver: what a program reads with `env.from_spark`, and how a job reads it.

If Spark computes the partitions of a DataFrame alike each time, they are fed to readers as they are
computed. After a shuffle, rows come in another order each time, so a position in a partition has no
meaning. Such a partition is first written to a file, once.

The DataFrames of one streaming job: made ready before it starts, released when it is over.
"""

from __future__ import annotations

import contextlib
import copy
import secrets
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from pyspark import RDD, Accumulator, cloudpickle
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession

from penstock.engine.hosting.jobmanager.coordinators.source_coordinator import CoordinatedVertex
from penstock.engine.hosting.jobmanager.ha.packed_job import SubmittedJob
from penstock.engine.hosting.network.wire.addresses import addresses_of
from penstock.engine.hosting.observer import JobEnded, JobObserver
from penstock.engine.hosting.os.file_systems import joined, local_path, open_files
from penstock.engine.hosting.os.private_files import make_folder
from penstock.engine.hosting.os.spark_thread import SparkThread
from penstock.engine.hosting.provider import TaskManagerProvider
from penstock.engine.hosting.shipping.package_archive import ship
from penstock.engine.hosting.shipping.worker_imports import Appended, Archives
from penstock.engine.hosting.spark.connect.frames import ConnectFrame, ConnectJobFrame
from penstock.engine.hosting.spark.dataframes import feed_task
from penstock.engine.hosting.spark.dataframes.feed_reader import FeedFailed, FeedHosts, FeedPlace
from penstock.engine.hosting.spark.dataframes.feed_server import FeedServer
from penstock.engine.hosting.spark.dataframes.schemas import type_of
from penstock.engine.hosting.spark.dataframes.source import FrameFormat, FrameRun, FrameSource
from penstock.engine.hosting.spark.dataframes.spool import SpoolFile
from penstock.engine.machines.checkpoints.settings import checkpoint_places_of
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError, GraphError
from penstock.engine.model.options.cluster import (
    JobManagerAddressOptions,
    TaskManagerAddressOptions,
)
from penstock.engine.model.states import JobStatus
from penstock.engine.model.types import RowTypeInfo, Types

_LARGE_TYPES: Final = "spark.sql.execution.arrow.useLargeVarTypes"
_TIMES: Final = (Types.LONG(), Types.TIMESTAMP_LTZ(), Types.SQL_TIMESTAMP(), Types.SQL_DATE())


class DriverFrame:
    """`source.Frame` of one DataFrame."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self.run: FrameRun | None = None

    @property
    def spark(self) -> SparkSession:
        return self._frame.sparkSession

    @cached_property
    def _java_messages(self) -> Any:
        """The partitions' Arrow messages. With adaptive execution, Spark runs the shuffles below the DataFrame now."""
        return self._frame._jdf.toArrowBatchRdd()

    @property
    def comes_alike(self) -> bool:
        """Whether computing a partition twice gives the same rows in the same order."""
        return self.level == "DETERMINATE"

    @property
    def level(self) -> str:
        """Spark's `DeterministicLevel`."""
        return str(self._java_messages.outputDeterministicLevel().toString())

    def messages(self) -> RDD[bytes]:
        return RDD(self._java_messages.toJavaRDD(), self.spark.sparkContext, NoOpSerializer())

    def messages_of(self, subtasks: int) -> RDD[bytes]:
        """Return the messages in `subtasks` partitions: surplus partitions are merged, missing ones are added empty."""
        context = self.spark.sparkContext
        java = self._java_messages.toJavaRDD()
        there = java.getNumPartitions()
        if there > subtasks:
            java = java.coalesce(subtasks, False)
        elif there < subtasks:
            jvm = context._jvm
            assert jvm is not None
            nothing = context._jsc.parallelize(jvm.java.util.ArrayList(), subtasks - there)
            java = java.union(nothing)
        return RDD(java, context, NoOpSerializer())

    def collected(self, subtasks: int, subtask: int) -> list[bytes]:
        messages = self.messages_of(subtasks)
        return list(self.spark.sparkContext.runJob(messages, list, [subtask]))


def frame_source(frame: object, timestamp_column: str | None) -> FrameSource:
    """Raises: TypeError: not a DataFrame. GraphError: a column has no counterpart, or the timestamp
    column is unusable.
    """
    if not isinstance(frame, DataFrame):
        raise TypeError(
            "from_spark takes a DataFrame of Spark, got "
            f"{type(frame).__module__}.{type(frame).__qualname__}."
        )
    if frame.isStreaming:
        raise GraphError(
            "from_spark takes a bounded DataFrame, got one of spark.readStream. Read its "
            "source with spark.read, or write a Source of your own "
            "(penstock.datastream.connectors.Source)."
        )
    type_info = type_of(frame.schema)
    if timestamp_column is not None:
        _check_time(type_info, timestamp_column)
    large = frame.sparkSession.conf.get(_LARGE_TYPES, "false") == "true"
    is_remote = not hasattr(frame, "_jdf")
    found = ConnectFrame(frame) if is_remote else DriverFrame(frame)
    return FrameSource(found, FrameFormat(type_info, large, timestamp_column))


def _check_time(type_info: RowTypeInfo, name: str) -> None:
    if name not in type_info.get_field_names():
        raise GraphError(
            f"from_spark: timestamp_column is {name!r}, but the DataFrame's columns are "
            f"{type_info.get_field_names()}. Name one of them."
        )
    kind = type_info.get_field_types()[type_info.get_field_index(name)]
    if kind not in _TIMES:
        raise GraphError(
            f"from_spark: the timestamp column {name!r} is of type {kind}, but must be a "
            "TIMESTAMP, a TIMESTAMP_NTZ (taken as UTC), a DATE or a BIGINT of epoch "
            "milliseconds. Cast it."
        )


@dataclass(frozen=True, slots=True)
class FrameSurroundings:
    """What a streaming job has for its DataFrames.

    `hosts`: where the driver and readers listen. `spool`: directory or URI that driver and
    executors share; None: there is none.
    """

    hosts: FeedHosts
    spool: str | None


class JobFrame:
    """`source.FrameRun`: a DataFrame in one streaming job. Call `close` when the job is over."""

    def __init__(self, frame: DriverFrame, name: str, around: FrameSurroundings) -> None:
        self._frame = frame
        self._name = name
        self._around = around
        self._lock = threading.Lock()
        self._spool: _Spool | None = None
        context = frame.spark.sparkContext
        self._archives = ship(context, b"")

    @cached_property
    def _server(self) -> FeedServer:
        return FeedServer(self._frame.messages(), self._archives, self._around.hosts, self._name)

    def place_for_reader(self) -> FeedPlace:
        return self._server.place_for_reader()

    def partitions(self) -> int:
        return int(self._frame.messages().getNumPartitions())

    @property
    def is_spooled(self) -> bool:
        return self._around.spool is not None and not self._frame.comes_alike

    def spool(self, partitions: Sequence[int]) -> None:
        with self._lock:
            if self._spool is None:
                assert self._around.spool is not None
                messages = self._frame.messages()
                self._spool = _Spool(messages, self._archives, self._around.spool, self._name)
                self._spool.start(partitions)
            elif self._spool.has_failed:
                self._spool.check_may_mix(self._frame)
                self._spool.start(partitions)

    def spooled(self) -> dict[int, SpoolFile]:
        return {} if self._spool is None else self._spool.files()

    def close(self, *, keeps_files: bool = False) -> None:
        if "_server" in self.__dict__:
            self._server.close()
        if self._spool is not None:
            self._spool.close(keeps_files=keeps_files)
        with contextlib.suppress(Exception):  # The session may be stopped already.
            self._archives.contents.destroy()


class _Spool:
    """Writes all partitions in one Spark job, so that Spark ensures that they belong to one computation."""

    def __init__(self, messages: RDD[bytes], archives: Archives, folder: str, name: str) -> None:
        cloudpickle.register_pickle_by_value(feed_task)
        self._messages = messages
        self._context = messages.ctx
        self._archives = archives
        self._folder = folder
        self._name = name
        self._group = f"penstock-spool-{id(self):x}"
        path = local_path(folder)
        if path is not None:  # No other user may read it.
            make_folder(path)
        self._written: Accumulator[list[Any]] = self._context.accumulator([], Appended())
        self._failure: Exception | None = None
        self._is_closed = False
        self._thread: SparkThread | None = None

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    def check_may_mix(self, frame: DriverFrame) -> None:
        """Check before the missing partitions are computed again.

        Raises: FeedFailed: they would belong to another computation than those that are written.
        """
        if self._written.value and frame.level == "INDETERMINATE":
            raise FeedFailed(
                f"Spark has given up {self._name} after some of its partitions were read. "
                "Computed again, the partitions would hold other rows. Write the DataFrame "
                "with df.write.parquet(...), and read that."
            ) from self._failure

    def start(self, partitions: Sequence[int]) -> None:
        self._failure = None
        self._thread = SparkThread(
            self._context, lambda: self._run(list(partitions)), self._fail, "penstock-spool"
        )
        self._thread.start()

    def files(self) -> dict[int, SpoolFile]:
        if self._failure is not None:
            raise FeedFailed(f"Spark has given up {self._name}: {self._failure}") from self._failure
        return {one[0]: SpoolFile(self._folder, *one[1:]) for one in list(self._written.value)}

    def close(self, *, keeps_files: bool) -> None:
        self._is_closed = True
        if self._thread is not None and self._thread.is_alive():
            with contextlib.suppress(Exception):  # A stopped context has no jobs left.
                self._context.cancelJobGroup(self._group)
            self._thread.join(5.0)
        if keeps_files:
            return
        with contextlib.suppress(Exception):  # The directory's name says what a leftover is.
            files, path = open_files(self._folder)
            files.remove(path)

    def _run(self, partitions: list[int]) -> None:
        try:
            self._context.setJobGroup(
                self._group, f"{self._name}: to files", interruptOnCancel=True
            )
            body = self._messages.mapPartitionsWithIndex(
                spooling_body(self._archives, self._folder, self._written),
                preservesPartitioning=True,
            )
            self._context.runJob(body, list, partitions)
        except Exception as error:  # Any error of Spark is reported to the job.
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self._is_closed:
            self._failure = error


def spooling_body(archives: Archives, folder: str, written: Accumulator[list[Any]]) -> Any:
    spool_partition = feed_task.spool_partition

    def run(partition: int, messages: Any) -> Any:
        return spool_partition(archives, (folder, partition, written), messages)

    run.__module__ = "__main__"  # Pickled by value, like everything in the Spark closure.
    return run


def spool_folder(configured: str | None, job_id: str, *, shares_files: bool) -> str | None:
    """Return where a job's partitions are kept: below the checkpoint directory, or in a temporary
    directory of this machine.
    """
    if configured is not None:
        return joined(joined(configured, job_id), "dataframes")
    if not shares_files:
        return None
    return f"{tempfile.gettempdir()}/penstock-dataframes-{secrets.token_hex(8)}"


def with_frames(
    job: SubmittedJob,
    settings: Settings,
    provider: TaskManagerProvider,
    observer: JobObserver,
) -> tuple[SubmittedJob, JobObserver]:
    """Return the job with its own DataFrames, and an observer that releases them.

    A program may submit one stream several times, so each job gets its own. Raises: ConfigurationError.
    """
    opened: list[JobFrame | ConnectJobFrame] = []

    def own(place: CoordinatedVertex) -> CoordinatedVertex:
        source = place.coordinator
        if not isinstance(source, FrameSource):
            return place
        if not isinstance(source.frame, DriverFrame | ConnectFrame):
            return place
        frame = copy.copy(source.frame)
        folder = spool_folder(
            checkpoint_places_of(settings).directory,
            f"{job.graph.job_id}/{place.uid}",
            shares_files=provider.shares_files and isinstance(frame, DriverFrame),
        )
        if isinstance(frame, ConnectFrame):
            run: JobFrame | ConnectJobFrame = frame.run_in(place.name, folder)
        else:
            around = FrameSurroundings(_hosts(settings, provider), folder)
            run = JobFrame(frame, place.name, around)
        frame.run = run
        opened.append(run)
        return replace(place, coordinator=FrameSource(frame, source.form))

    coordinated = tuple(map(own, job.coordinated))
    return replace(job, coordinated=coordinated), _ClosingFrames(observer, opened)


def _hosts(settings: Settings, provider: TaskManagerProvider) -> FeedHosts:
    """Raises: ConfigurationError."""
    driver, readers = provider.control_endpoint, addresses_of(settings)
    for option, mapped in (
        (JobManagerAddressOptions.BIND_PORT.key, driver.port),
        (TaskManagerAddressOptions.DATA_BIND_PORT.key, readers.data_port),
    ):
        if mapped is not None:
            raise ConfigurationError(
                f"{option} maps one port, but a source that reads a DataFrame in a streaming "
                f"job listens at a further port. Set {option.replace('bind-', '')} to a range "
                "of ports that are the same on both sides instead."
            )
    return FeedHosts(driver, readers)


class _ClosingFrames(JobObserver):
    """Passes all events on to another observer, and releases the DataFrames when the job has ended."""

    def __init__(self, inner: JobObserver, frames: list[JobFrame | ConnectJobFrame]) -> None:
        self._inner = inner
        self._frames = frames

    def observe(self, event: object) -> None:
        """Release the DataFrames on a separate thread, because that removes files and asks Spark.

        Files of a suspended job stay for the driver that takes it over.
        """
        if isinstance(event, JobEnded):
            keeps_files = event.status is JobStatus.SUSPENDED
            threading.Thread(
                target=_close, args=(self._frames, keeps_files), name="penstock-dataframes-end"
            ).start()
        self._inner.observe(event)


def _close(frames: list[JobFrame | ConnectJobFrame], keeps_files: bool) -> None:
    for frame in frames:
        frame.close(keeps_files=keeps_files)
