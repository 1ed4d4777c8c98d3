"""The cache of a lookup: which rows a key has, until it is full or they are too old. Does not know databases or tasks.

Source: Flink LookupCache, DefaultLookupCache (`lookup.cache` PARTIAL) and CacheMetricGroup; differs: `max_rows` counts rows, not
keys, so that keys with many rows fill no memory.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.common.time import Duration
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.time import millis_of
from penstock.engine.runtime.user_metrics import Counter, MetricGroup

MAX_ROWS: Final = 100_000


@dataclass(frozen=True, slots=True)
class LookupCache:
    """What a subtask keeps of the rows that it has looked up. Each subtask has a cache of its own, in memory.

    Args:
        max_rows: the most rows; a key without rows counts as one. Those that were not used for longest go first.
        expire_after_write: how long a key's rows are used after they were read; None: for ever.
        expire_after_access: how long they are used after they were used last; None: for ever.
        cache_missing_key: whether keys without a row are kept, too.

    Raises:
        ConfigurationError: a number or time is not above 0.
    """

    max_rows: int = MAX_ROWS
    expire_after_write: Duration | None = None
    expire_after_access: Duration | None = None
    cache_missing_key: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.max_rows, bool) or not isinstance(self.max_rows, int):
            raise ConfigurationError(f"LookupCache: max_rows is a number, got {self.max_rows!r}.")
        if self.max_rows < 1:
            raise ConfigurationError(
                f"LookupCache: max_rows is 1 or more, got {self.max_rows}. A lookup without "
                "set_cache keeps nothing."
            )
        for name in ("expire_after_write", "expire_after_access"):
            value = getattr(self, name)
            if value is not None and millis_of(value) < 1:
                raise ConfigurationError(
                    f"LookupCache: {name} is a Duration of 1 ms or more, such as "
                    f"Duration.of_minutes(10), or None; got {value!r}."
                )


@dataclass(slots=True)
class _Entry:
    """`written_s`, `used_s`: by the cache's clock."""

    rows: Sequence[Any]
    written_s: float
    used_s: float


class RowCache:
    """One subtask's cache. Used by one thread."""

    def __init__(self, settings: LookupCache, now_s: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._now_s = now_s
        # Those that were used last are at the end.
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._count = 0
        self._write_s = _seconds(settings.expire_after_write)
        self._access_s = _seconds(settings.expire_after_access)

    @property
    def count(self) -> int:
        """How many rows there are; a key without rows counts as one."""
        return self._count

    def get(self, key: Hashable) -> Sequence[Any] | None:
        """The rows of a key; None: they are not here, or too old."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        now_s = self._now_s()
        if now_s - entry.written_s >= self._write_s or now_s - entry.used_s >= self._access_s:
            self._drop(key)
            return None
        entry.used_s = now_s
        self._entries.move_to_end(key)
        return entry.rows

    def put(self, key: Hashable, rows: Sequence[Any]) -> None:
        """Keep the rows of a key, unless they are more than all that may be kept."""
        self._drop(key)
        size = _size(rows)
        if size > self._settings.max_rows or not (rows or self._settings.cache_missing_key):
            return
        while self._count + size > self._settings.max_rows:
            self._drop(next(iter(self._entries)))
        now_s = self._now_s()
        self._entries[key] = _Entry(rows, now_s, now_s)
        self._count += size

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._count -= _size(entry.rows)


class CacheFigures:
    """Flink's metrics of a cache, in the group `cache` of the operator."""

    def __init__(self, group: MetricGroup, cache: RowCache | None) -> None:
        inner = group.add_group("cache")
        self.hits: Counter = inner.counter("hitCount")
        self.misses: Counter = inner.counter("missCount")
        self.loads: Counter = inner.counter("loadCount")
        self.failures: Counter = inner.counter("numLoadFailures")
        self.load_ms = -1
        inner.gauge("latestLoadTime", lambda: self.load_ms)
        if cache is not None:
            inner.gauge("numCachedRecords", lambda: cache.count)


def _seconds(duration: Duration | None) -> float:
    return float("inf") if duration is None else millis_of(duration) / 1000


def _size(rows: Sequence[Any]) -> int:
    return max(1, len(rows))
