"""What Spark's Python worker gets from a BATCH job: one function, shipped by value.

It puts the shipped archives on the path and hands over to `batch_task`. Penstock stays imported in the worker, which Spark
reuses, until a job with other archives comes. Imports nothing of Penstock at module level: executors need not have it.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator
from typing import Any


class Appended:
    """`AccumulatorParam` of lists: what each task adds comes behind what is there."""

    def zero(self, value: list[Any]) -> list[Any]:
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:  # ruff: ignore[invalid-function-name]
        value1.extend(value2)
        return value1


def run_subtask(
    shipped: Any, aside: Any, subtask: int, records: Iterable[bytes]
) -> Iterator[bytes]:
    """Body of a Spark task. `shipped`: broadcast variable with ((name, zip), ...) and the pickled Orders. `aside`: accumulator
    for what the task tells the driver, or None.

    Yields key and record in turns, as Spark's PairwiseRDD takes them: the reduce partition in 8 bytes, then the bytes.
    """
    import importlib
    import os
    import sys
    import tempfile

    from pyspark import TaskContext

    archives, orders = shipped.value
    wanted = [name for name, _ in archives]
    state = sys.__dict__.setdefault("_penstock_archives", ([], None))
    if state[0] != wanted:
        for module in [name for name in sys.modules if name.split(".")[0] == "penstock"]:
            del sys.modules[module]
        if state[1] is not None:
            sys.path[:] = [path for path in sys.path if not path.startswith(state[1])]
        folder = tempfile.mkdtemp(prefix=f"penstock-{os.getpid()}-")
        for name, content in archives:
            path = os.path.join(folder, name + ".zip")
            with pathlib.Path(path).open("wb") as target:
                target.write(content)
            sys.path.insert(0, path)
        importlib.invalidate_caches()
        sys.__dict__["_penstock_archives"] = (wanted, folder)
    body = importlib.import_module("penstock.hosting.batch.spark_body")
    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    tell = None if aside is None else lambda record: aside.add([record])
    yield from body.run(orders, subtask, attempt, iter(records), tell)
