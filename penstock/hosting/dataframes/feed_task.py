"""What Spark's Python worker gets of a feed: one function, shipped by value. See `hosting/worker_imports.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def feed_partition(
    shipped: Any, find: Callable[..., Any], order: tuple[Any, ...], messages: Iterable[bytes]
) -> Iterator[None]:
    """Body of a Spark task. `shipped`: broadcast variable with the archives. `find`: `worker_imports.import_shipped`. `order`: a
    `feeding.FeedOrder` as a tuple.
    """
    feeding = find(shipped.value, "penstock.hosting.dataframes.feeding")
    feeding.feed(feeding.FeedOrder(*order), messages)
    return iter(())


def spool_partition(
    shipped: Any, find: Callable[..., Any], told: tuple[str, int, Any], messages: Iterable[bytes]
) -> Iterator[None]:
    """Body of a Spark task that keeps a partition in a file. `told`: folder, partition, accumulator of (partition, name, bytes),
    where Spark counts each task that has finished once.
    """
    folder, partition, written = told
    spool = find(shipped.value, "penstock.hosting.dataframes.spool")
    file = spool.write_partition(folder, partition, messages)
    written.add([(partition, file.name, file.bytes)])
    return iter(())
