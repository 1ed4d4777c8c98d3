"""What Spark's Python worker gets from a BATCH job: one function, shipped by value, which hands over to `batch_task`.

See `worker_imports` for how Penstock comes there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from penstock.hosting.shipping.worker_imports import Archives, at_work, import_shipped


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
    body = import_shipped(shipped.archives, "penstock.hosting.batch.spark_body")
    tell = None if aside is None else lambda record: aside.add([record])
    unread = iter(records)
    with at_work():
        yield from body.run(shipped.orders.value, subtask, _attempt(), unread, tell)
    _read_to_end(unread)


def run_frame_subtask(shipped: Shipped, subtask: int, records: Iterable[bytes]) -> Iterator[bytes]:
    """The same of the stage that a DataFrame goes on from. Yields Arrow messages."""
    body = import_shipped(shipped.archives, "penstock.hosting.batch.spark_body")
    unread = iter(records)
    with at_work():
        yield from body.frames(shipped.orders.value, subtask, _attempt(), unread)
    _read_to_end(unread)


def decoded(schema: Any, batches: Iterable[Any]) -> Iterator[Any]:
    """Body of mapInArrow: record batches whose one column has Arrow messages, to what these hold. `schema`: of that."""
    import pyarrow as pa

    for batch in batches:
        for message in batch.column(0):
            yield pa.ipc.read_record_batch(message.as_buffer(), schema)


def _read_to_end(unread: Iterator[bytes]) -> None:
    """A worker that has not read all of its input, the end included, is not used again by Spark."""
    for _ in unread:
        pass


def _attempt() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()
