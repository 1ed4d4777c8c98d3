"""DataFrames of a Spark Connect client as sources of streaming jobs.

A client cannot have Spark compute one partition, nor ask whether it would come alike twice. So Spark computes all
partitions once, in one job, and writes them to files that readers read. What is there is known when all are written.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Sequence
from typing import Any

from penstock.engine.hosting.os.file_systems import local_path, open_files
from penstock.engine.hosting.os.private_files import make_folder
from penstock.engine.hosting.spark.connect.cluster import ConnectCluster
from penstock.engine.hosting.spark.dataframes.feed_reader import FeedFailed, FeedPlace
from penstock.engine.hosting.spark.dataframes.source import FrameRun
from penstock.engine.hosting.spark.dataframes.spool import SpoolFile
from penstock.engine.hosting.spark.worker_python import cause_in
from penstock.engine.model.errors import ConfigurationError, GraphError


class ConnectFrame:
    """`source.Frame` of one DataFrame of a Spark Connect session."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self.run: FrameRun | None = None

    def messages_of(self, subtasks: int) -> Any:
        """Raises GraphError."""
        raise GraphError(
            "a DataFrame of a Spark Connect client cannot be read in runtime mode BATCH."
        )

    def collected(self, subtasks: int, subtask: int) -> list[bytes]:
        return list(self.messages_of(subtasks))

    def run_in(self, name: str, folder: str | None) -> ConnectJobFrame:
        """Return its run in one job. Raises ConfigurationError: there is no folder."""
        if folder is None:
            raise ConfigurationError(
                f"{name}: through Spark Connect, Spark writes a DataFrame to files that the "
                "TaskManagers read, and execution.checkpointing.dir is not set. Set it to a place "
                "that all executors share."
            )
        return ConnectJobFrame(self._frame, name, folder)


class ConnectJobFrame:
    """`source.FrameRun`. Call `close` when the job is over."""

    is_spooled = True

    def __init__(self, frame: Any, name: str, folder: str) -> None:
        self._frame = frame
        self._name = name
        self._folder = folder
        self._cluster = ConnectCluster.of(frame.sparkSession)
        self._tag = f"penstock-spool-{secrets.token_hex(8)}"
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._files: dict[int, SpoolFile] | None = None
        self._failure: Exception | None = None

    def place_for_reader(self) -> FeedPlace | None:
        """Return None: no reader needs a feed."""
        return None

    def partitions(self) -> int | None:
        """Return None: not known before all are written."""
        return None

    def spool(self, partitions: Sequence[int]) -> None:
        with self._lock:
            if self._thread is not None and (self._thread.is_alive() or self._files is not None):
                return
            self._failure = None
            path = local_path(self._folder)
            if path is not None:  # No other user may read it.
                make_folder(path)
            self._thread = threading.Thread(target=self._run, name="penstock-spool", daemon=True)
            self._thread.start()

    def spooled(self) -> dict[int, SpoolFile] | None:
        if self._failure is not None:
            raise FeedFailed(
                f"Spark has given up {self._name}: {cause_in(str(self._failure))}"
            ) from self._failure
        return self._files

    def close(self, *, keeps_files: bool = False) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._cluster.cancel(self._tag)
            self._thread.join(5.0)
        if not keeps_files:
            with contextlib.suppress(Exception):  # The directory's name says what a leftover is.
                files, path = open_files(self._folder)
                files.remove(path)

    def _run(self) -> None:
        try:
            rows = self._cluster.spool(self._tag, self._frame, self._folder)
            self._files = {
                row.partition: SpoolFile(self._folder, row.name, row.bytes) for row in rows
            }
        except Exception as error:  # Any error of Spark is reported to the job.
            self._failure = error
