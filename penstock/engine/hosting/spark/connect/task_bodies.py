"""Functions that Spark's Python workers run for a Spark Connect client. They are shipped by value, as `executor_task` is.

A client has no RDDs and no broadcasts: a task is a partition of `mapInArrow`, and Penstock comes as a file of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock.engine.hosting.spark.executor_task import with_package

DIAL_S = 5.0
PROBED = "host string, executable string, python string, pyarrow string, refusal string"
SPOOLED = "partition int, name string, bytes bigint"


class SessionFile:
    """A file that the client has added to its session; `value` as that of a broadcast variable."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def value(self) -> bytes:
        from pyspark import SparkFiles

        with open(SparkFiles.get(self.name), "rb") as file:
            return file.read()


def causes(host: Callable[[Any], Iterable[str]]) -> Callable[[Any], Any]:
    """Return the body of a task that runs `host` and yields what that returns."""

    def run(batches: Any) -> Iterator[Any]:
        import pyarrow as pa

        for cause in host(batches):
            yield pa.RecordBatch.from_pydict({"cause": [cause]})

    return run


def probing(address: tuple[str, int]) -> Callable[[Any], Any]:
    """Return the body of a task that says what its worker is, and why it cannot reach the client."""

    def run(batches: Any) -> Iterator[Any]:
        import platform
        import socket
        import sys

        import pyarrow as pa

        for _ in batches:
            pass
        refusal = ""
        try:
            socket.create_connection(address, DIAL_S).close()
        except OSError as error:
            refusal = str(error)
        yield pa.RecordBatch.from_pydict({
            "host": [socket.gethostname()],
            "executable": [sys.executable],
            "python": [platform.python_version()],
            "pyarrow": [pa.__version__],
            "refusal": [refusal],
        })

    return run


def spooling(package: SessionFile, folder: str) -> Callable[[Any], Any]:
    """Return the body of a task that writes its partition to a file. See `dataframes.spool`."""

    def run(batches: Any) -> Iterator[Any]:
        import importlib

        import pyarrow as pa
        from pyspark import TaskContext

        task = TaskContext.get()
        partition = 0 if task is None else task.partitionId()
        messages = (batch.serialize() for batch in batches if batch.num_rows)

        def write(_path: str) -> Any:
            spool = importlib.import_module("penstock.engine.hosting.spark.dataframes.spool")
            return spool.write_partition(folder, partition, messages)

        file = with_package(package, write)
        yield pa.RecordBatch.from_pydict({
            "partition": pa.array([partition], pa.int32()),
            "name": [file.name],
            "bytes": [file.bytes],
        })

    return run
