"""The function of a BATCH job that runs in Spark's Python worker. It is shipped by value and calls
`batch_task`.

`worker_imports` describes how the worker gets Penstock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from penstock.engine.hosting.shipping.worker_imports import Archives, at_work, import_shipped


class Shipped(NamedTuple):
    """What the function is shipped with. `orders`: a broadcast of pickled Orders. `makes_frame`: the result of the stage becomes a
    DataFrame.
    """

    archives: Archives
    orders: Any
    makes_frame: bool = False


def run_subtask(
    shipped: Shipped, aside: Any, subtask: int, records: Iterable[bytes]
) -> Iterator[bytes]:
    """Body of a Spark task. `aside`: accumulator for the report to the driver, or None.

    Yields key and record in turn, as Spark's PairwiseRDD expects: the reduce partition in 8 bytes,
    then the record. For a DataFrame: Arrow messages.
    """
    name = "penstock.engine.hosting.spark.batch.spark_body"
    body = import_shipped(shipped.archives, name)
    run = body.frames if shipped.makes_frame else body.run
    put_aside = None if aside is None else lambda record: aside.add([record])
    unread = iter(records)
    with at_work():
        yield from run(shipped.orders.value, subtask, _attempt(), unread, put_aside)
    _read_to_end(unread)


def decoded(schema: Any, batches: Iterable[Any]) -> Iterator[Any]:
    """Body of mapInArrow: decode record batches whose only column holds Arrow messages. `schema`:
    of the messages.
    """
    import pyarrow as pa

    for batch in batches:
        for message in batch.column(0):
            yield pa.ipc.read_record_batch(message.as_buffer(), schema)


def _read_to_end(unread: Iterator[bytes]) -> None:
    """Read the input to its end. Spark reuses a worker only if it has read all of its input,
    including the end mark.
    """
    for _ in unread:
        pass


def _attempt() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()
