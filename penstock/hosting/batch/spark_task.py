"""What Spark's Python worker gets from a BATCH job: one function, shipped by value, which hands over to `batch_task`.

See `worker_imports` for how Penstock comes there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from penstock.hosting.worker_imports import Archives, import_shipped


class Shipped(NamedTuple):
    """`orders`: broadcast, pickled Orders."""

    archives: Archives
    orders: Any


def run_subtask(
    shipped: Shipped, aside: Any, subtask: int, records: Iterable[bytes]
) -> Iterator[bytes]:
    """Body of a Spark task. `aside`: accumulator for what the task tells the driver, or None.

    Yields key and record in turns, as Spark's PairwiseRDD takes them: the reduce partition in 8 bytes, then the bytes.
    """
    from pyspark import TaskContext

    body = import_shipped(shipped.archives, "penstock.hosting.batch.spark_body")
    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    tell = None if aside is None else lambda record: aside.add([record])
    yield from body.run(shipped.orders.value, subtask, attempt, iter(records), tell)
