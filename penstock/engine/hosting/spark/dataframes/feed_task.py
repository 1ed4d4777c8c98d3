"""Bodies of Spark tasks that compute a DataFrame for a streaming job. They run in Spark's Python
worker and are shipped by value.

`worker_imports` describes how the worker gets Penstock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.engine.hosting.shipping.worker_imports import Archives, import_shipped


def feed_partition(
    archives: Archives, order: tuple[Any, ...], messages: Iterable[bytes]
) -> Iterator[None]:
    """Send a partition to its reader. `order`: a `feeding.FeedOrder` as a tuple."""
    feeding = import_shipped(archives, "penstock.engine.hosting.spark.dataframes.feeding")
    feeding.feed(feeding.FeedOrder(*order), messages)
    return iter(())


def spool_partition(
    archives: Archives, arguments: tuple[str, int, Any], messages: Iterable[bytes]
) -> Iterator[None]:
    """Write a partition to a file.

    `arguments`: folder, partition, accumulator of (partition, name, bytes). Spark counts each
    finished task once in the accumulator.
    """
    folder, partition, written = arguments
    spool = import_shipped(archives, "penstock.engine.hosting.spark.dataframes.spool")
    file = spool.write_partition(folder, partition, messages)
    written.add([(partition, file.name, file.bytes)])
    return iter(())
