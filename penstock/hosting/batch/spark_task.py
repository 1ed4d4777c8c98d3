"""What Spark's Python worker gets from a BATCH job: one function, shipped by value.

It puts the shipped archives on the path and hands over to `batch_task`. Penstock stays imported in the worker, which Spark
reuses, until a job with other archives comes. Imports nothing of Penstock at module level: executors need not have it.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple


class Appended:
    """`AccumulatorParam` of lists: what each task adds comes behind what is there."""

    def zero(self, value: list[Any]) -> list[Any]:
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:  # ruff: ignore[invalid-function-name]
        value1.extend(value2)
        return value1


class Shipped(NamedTuple):
    """`archives`: broadcast zips, one for each of `names`, which are of their contents. `orders`: broadcast, pickled Orders."""

    names: tuple[str, ...]
    archives: Any
    orders: Any


def run_subtask(
    shipped: Shipped, aside: Any, subtask: int, records: Iterable[bytes]
) -> Iterator[bytes]:
    """Body of a Spark task. `aside`: accumulator for what the task tells the driver, or None.

    Yields key and record in turns, as Spark's PairwiseRDD takes them: the reduce partition in 8 bytes, then the bytes.
    """
    import importlib
    import sys

    from pyspark import TaskContext

    installed, folder = sys.__dict__.get("_penstock_archives", ((), None))
    if installed != shipped.names:
        sys.__dict__["_penstock_archives"] = shipped.names, _install(shipped, folder)
    body = importlib.import_module("penstock.hosting.batch.spark_body")
    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    tell = None if aside is None else lambda record: aside.add([record])
    unread = iter(records)
    yield from body.run(shipped.orders.value, subtask, attempt, unread, tell)
    for _ in unread:  # a worker that has not read all, its end included, is not used again
        pass


def _install(shipped: Shipped, former: str | None) -> str:
    """Put the archives on the path, in place of those in the folder `former`. Gives their folder, which goes with the application."""
    import importlib
    import os
    import shutil
    import sys
    import tempfile

    from pyspark import SparkFiles

    for module in [name for name in sys.modules if name.split(".")[0] == "penstock"]:
        del sys.modules[module]
    if former is not None:
        sys.path[:] = [path for path in sys.path if not path.startswith(former)]
        shutil.rmtree(former, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=f"penstock-{os.getpid()}-", dir=SparkFiles.getRootDirectory())
    for name, content in zip(shipped.names, shipped.archives.value, strict=True):
        path = pathlib.Path(folder) / f"{name}.zip"
        path.write_bytes(content)
        sys.path.insert(0, str(path))
    importlib.invalidate_caches()
    return folder
