"""SqlLookup: looks records up in a table of a SQL database, by key, async and cached. Needs SQLAlchemy 2 (`penstock[sql]`).

`AsyncDataStream.lookup_join` joins a stream with it. The keys of all records that are there at once are asked for by one query.
Source: Flink's lookup join (FOR SYSTEM_TIME AS OF), JdbcDynamicTableSource with its `lookup.*` options; differs: many keys in a
query, and a function that any async operator takes.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, Self, TypeAlias

from penstock.common.time import Duration
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.connectors.sql.engine import SqlBuilder, is_transient
from penstock.connectors.sql.jdbc_urls import alchemy_url
from penstock.connectors.sql.lookup_tables import LookupTable, LookupTarget
from penstock.datastream.functions import AsyncFunction
from penstock.engine.hosting.os.worker_thread import WorkerThreads
from penstock.engine.model.errors import ConfigurationError, ExternalError, GraphError
from penstock.engine.model.row import Row, make_row
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.model.time import millis_of
from penstock.engine.runtime.context import RuntimeContext
from penstock.engine.runtime.user_metrics import Counter, MetricGroup

# ---------------------------------------------------------------------- lookup loading
# Loads rows for keys that are asked for one by one: what is asked for at the same time becomes
# one call.
#
# Keys wait until the event loop has run everything that can run, so the keys of one batch of
# records come together; and while all connections are busy, so that a slow database gets fewer
# and larger calls. Does not know databases. Source: the DataLoader pattern; Flink's `lookup.max-
# retries`.


CLOSE_TIMEOUT_S: Final = 1.0
RETRY_DELAY_S: Final = 1.0
"""Times the number of the try, as in Flink."""

Rows: TypeAlias = Sequence[Any]
Read: TypeAlias = Callable[[Sequence[Hashable]], Mapping[Hashable, Rows]]


class BatchLoader:
    """All methods but `close` are called on one event loop."""

    def __init__(
        self,
        read: Read,
        observer: SqlLookupFunction,
        may_retry: Callable[[BaseException], bool],
        *,
        most_keys: int,
        calls: int,
        max_retries: int,
        delay_s: float = RETRY_DELAY_S,
    ) -> None:
        """`read`: from keys to the rows of each, on a thread. `calls`: how many at once."""
        self._read = read
        self._observer = observer
        self._may_retry = may_retry
        self._most_keys = most_keys
        self._max_retries = max_retries
        self._delay_s = delay_s
        self._threads = WorkerThreads("sql-lookup", calls)
        self._free = calls
        self._waiting: dict[Hashable, list[asyncio.Future[Rows]]] = {}
        self._under_way: dict[Hashable, list[asyncio.Future[Rows]]] = {}
        self._is_scheduled = False

    def load(self, key: Hashable) -> asyncio.Future[Rows]:
        """The rows of a key. Who asks for a key that is under way waits for the same call."""
        loop = asyncio.get_running_loop()
        # One for each who asks: a record that times out cancels its own.
        asked: asyncio.Future[Rows] = loop.create_future()
        found = self._under_way.get(key)
        if found is None:
            found = self._waiting.setdefault(key, [])
            if not self._is_scheduled:
                self._is_scheduled = True
                loop.call_soon(self._begin, loop)
        found.append(asked)
        return asked

    def close(self) -> None:
        """Calls under way are abandoned."""
        self._threads.close(CLOSE_TIMEOUT_S, drops=True)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_scheduled = False
        while self._waiting and self._free:
            keys = list(self._waiting)[: self._most_keys]
            for key in keys:
                self._under_way[key] = self._waiting.pop(key)
            self._free -= 1
            self._call(loop, keys, 1)

    def _call(
        self, loop: asyncio.AbstractEventLoop, keys: Sequence[Hashable], attempt: int
    ) -> None:
        self._threads.put(partial(self._on_thread, loop, keys, attempt))

    def _on_thread(
        self, loop: asyncio.AbstractEventLoop, keys: Sequence[Hashable], attempt: int
    ) -> None:
        begin_s = time.monotonic()
        found: Mapping[Hashable, Rows] | BaseException
        try:
            found = self._read(keys)
        except BaseException as error:  # raised where each of the keys was asked for
            found = error
        load_ms = int((time.monotonic() - begin_s) * 1000)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(self._done, loop, keys, attempt, found, load_ms)

    def _done(
        self,
        loop: asyncio.AbstractEventLoop,
        keys: Sequence[Hashable],
        attempt: int,
        found: Mapping[Hashable, Rows] | BaseException,
        load_ms: int,
    ) -> None:
        if isinstance(found, BaseException):
            self._observer.on_failed()
            if attempt <= self._max_retries and self._may_retry(found):
                loop.call_later(self._delay_s * attempt, self._call, loop, keys, attempt + 1)
                return
        else:
            self._observer.on_loaded(found, load_ms)
        self._free += 1
        for key in keys:
            for asked in self._under_way.pop(key):
                if asked.done():  # its record has timed out
                    continue
                if isinstance(found, BaseException):
                    asked.set_exception(found)
                else:
                    asked.set_result(found[key])
        self._begin(loop)


# ---------------------------------------------------------------------- lookup cache
# The cache of a lookup: which rows a key has, until it is full or they are too old. Does not know
# databases or tasks.
#
# Source: Flink LookupCache, DefaultLookupCache (`lookup.cache` PARTIAL) and CacheMetricGroup;
# differs: `max_rows` counts rows, not keys, so that keys with many rows fill no memory.


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
        self.settings = settings
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
        if size > self.settings.max_rows or not (rows or self.settings.cache_missing_key):
            return
        while self._count + size > self.settings.max_rows:
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


# ---------------------------------------------------------------------- sql lookup


__all__ = ["LookupCache", "SqlLookup", "SqlLookupFunction"]

_NAME: Final = "SqlLookup"
MAX_RETRIES: Final = 3
CONNECTIONS: Final = 4
MOST_KEYS: Final = 500

KeyOf = Callable[[Any], Any]
How = Literal["inner", "left"]


@dataclass(frozen=True, slots=True)
class _Settings(LookupTarget):
    """`most_keys`: in one query. `connections`: of a subtask."""

    cache: LookupCache | None = None
    max_retries: int = MAX_RETRIES
    connections: int = CONNECTIONS
    most_keys: int = MOST_KEYS


class SqlLookup:
    """A table in which records are looked up. Not in PyFlink.

    Build it: `SqlLookup.builder().set_url(url).set_table("users").set_key_columns(["id"]).build()`.
    """

    def __init__(self, settings: _Settings) -> None:
        """Use the builder."""
        self.settings = settings
        self._looked_at: LookupTable | None = None

    def __repr__(self) -> str:
        target = self.settings
        return f"{_NAME}({target}, by {', '.join(target.keys)})"

    def __getstate__(self) -> Any:
        return self.settings

    def __setstate__(self, state: Any) -> None:
        self.settings = state
        self._looked_at = None

    @staticmethod
    def builder() -> SqlLookup.Builder:
        """Return a builder."""
        return SqlLookup.Builder()

    class Builder(SqlBuilder):
        """Builds a SqlLookup; URL, table and key columns are required."""

        name = _NAME
        begin = _Settings

        def set_url(self, url: str) -> Self:
            """Set the URL, as SQLAlchemy or JDBC takes it; the executors get it with the job, password included."""
            if url.startswith("jdbc:"):
                url = alchemy_url(url, f"{_NAME}.set_url")
            return self._with(url=url)

        def set_key_columns(self, columns: Sequence[str]) -> Self:
            """Set the columns by which rows are looked up. An index on them makes it fast; a key may have several rows."""
            return self._with(keys=_names("set_key_columns", columns))

        def set_columns(self, columns: Sequence[str]) -> Self:
            """Set the columns that are looked up; by default all that are no key columns."""
            return self._with(columns=_names("set_columns", columns))

        def set_cache(self, cache: LookupCache | None) -> Self:
            """Set what each subtask keeps of the rows that it has looked up; by default nothing."""
            if cache is not None and not isinstance(cache, LookupCache):
                raise ConfigurationError(
                    f"{_NAME}.set_cache: expected a LookupCache, got {cache!r:.200}."
                )
            return self._with(cache=cache)

        def set_max_retries(self, retries: int) -> Self:
            """Set how often a query is tried again while the database does not answer, after 1 s, 2 s, ...; 3 times by default."""
            return self._with_number("set_max_retries", 0, max_retries=retries)

        def set_connections(self, connections: int) -> Self:
            """Set how many queries a subtask has under way at most, each on a connection of its own; 4 by default."""
            return self._with_number("set_connections", 1, connections=connections)

        def set_max_keys(self, keys: int) -> Self:
            """Set how many keys a query asks for at most; 500 by default."""
            return self._with_number("set_max_keys", 1, most_keys=keys)

        def build(self) -> SqlLookup:
            """Return the lookup. Raises ConfigurationError if something required is missing."""
            return SqlLookup(
                self._complete(url="set_url", table="set_table", keys="set_key_columns")
            )

    @property
    def row_type(self) -> RowTypeInfo:
        """The ROW type of what is looked up, by the types of the table's columns.

        The first call looks at the table, from the driver. Raises: ConfigurationError: it cannot be read, or lacks a column.
        """
        return self._table().row_type

    def function(self, key: KeyOf | Sequence[str] | str, how: How = "inner") -> SqlLookupFunction:
        """Return a function for AsyncDataStream, whose results are pairs `(record, row)`, one for each row found.

        Args:
            key: a function from a record to its key, or the fields that make it. A key of several columns is a tuple.
            how: "inner": records without a row are dropped; "left": they give `(record, None)`.

        Raises:
            ConfigurationError: the table cannot be read or lacks a column.
        """
        _check_how(how)
        fields = (key,) if isinstance(key, str) else key
        if not callable(fields):
            self._check_number(fields)
        self._table()
        return SqlLookupFunction(self.settings, _key_function(fields), _Pairs(how == "left"))

    def joined(
        self, input_type: TypeInformation | None, on: Sequence[str] | str | None, how: How
    ) -> tuple[SqlLookupFunction, RowTypeInfo]:
        """Return what `AsyncDataStream.lookup_join` runs, and the type of its results."""
        _check_how(how)
        target = self.settings
        fields = target.keys if on is None else (on,) if isinstance(on, str) else tuple(on)
        self._check_number(fields)
        if not isinstance(input_type, RowTypeInfo):
            raise GraphError(
                "lookup_join takes a stream of named Rows, whose type is declared as "
                f"Types.ROW_NAMED([...], [...]); this one has {input_type}. Declare it in the "
                "map() before, or use AsyncDataStream.unordered_wait with "
                "lookup.function(key)."
            )
        names, kinds = input_type.get_field_names(), input_type.get_field_types()
        missing = [name for name in fields if name not in names]
        if missing:
            raise GraphError(
                f"lookup_join: the stream has no fields {missing} to look up by; it has "
                f"{list(names)}. Name them with on=[...], in the order of the key columns "
                f"{list(target.keys)}."
            )
        table = self._table()
        table.check_keys([(name, kinds[names.index(name)]) for name in fields])
        found = table.row_type
        twice = [name for name in found.get_field_names() if name in names]
        if twice:
            raise GraphError(
                f"lookup_join: both the stream and the table have {twice}. Choose other columns "
                "with set_columns, or rename fields of the stream in a map()."
            )
        joined = RowTypeInfo([*kinds, *found.get_field_types()], [*names, *found.get_field_names()])
        width = len(found.get_field_names())
        places = tuple(names.index(name) for name in fields)
        row = _JoinedRows(tuple(joined.get_field_names()), len(names), width, is_left=how == "left")
        return SqlLookupFunction(self.settings, _FieldsAt(places), row), joined

    def _check_number(self, fields: Sequence[str]) -> None:
        keys = self.settings.keys
        if len(fields) != len(keys):
            raise ConfigurationError(
                f"{_NAME}: {len(fields)} fields {list(fields)} are looked up by {len(keys)} key "
                f"columns {list(keys)}. Name one for each, in their order."
            )

    def _table(self) -> LookupTable:
        if self._looked_at is None:
            table = LookupTable(self.settings, f"{_NAME} on the driver")
            try:
                table.check()
            finally:
                table.close()
            self._looked_at = table
        return self._looked_at


class SqlLookupFunction(AsyncFunction[Any, Any]):
    """Looks one record up; the event loop runs many at once. Made by `SqlLookup.function`."""

    def __init__(
        self, settings: _Settings, key_of: KeyOf, results: Callable[[Any, Rows], list[Any]]
    ) -> None:
        self.settings = settings
        self._key_of = key_of
        self._results = results

    def open(self, runtime_context: RuntimeContext) -> None:
        """Make the cache and the pool of connections. Nothing connects before the first record."""
        settings = self.settings
        where = f"{_NAME}, subtask {runtime_context.get_index_of_this_subtask()}"
        self._table = LookupTable(settings, where, settings.connections)
        self._cache = None if settings.cache is None else RowCache(settings.cache)
        group = runtime_context.get_metrics_group() or MetricGroup()  # None: they are turned off
        self._figures = CacheFigures(group, self._cache)
        self._width = len(settings.keys)
        self._loader = BatchLoader(
            self._table.rows_of,
            self,
            _may_retry,
            most_keys=settings.most_keys,
            calls=settings.connections,
            max_retries=settings.max_retries,
        )

    def results_now(self, value: Any) -> list[Any] | None:
        """Return what the cache knows, without an await; None: the database has to be asked."""
        key = self._key(value)
        if None in key:
            return self._results(value, ())
        rows = None if self._cache is None else self._cache.get(key)
        if rows is None:
            return None
        self._figures.hits.inc()
        return self._results(value, rows)

    async def async_invoke(self, value: Any) -> list[Any]:
        known = self.results_now(value)
        if known is not None:
            return known
        self._figures.misses.inc()
        return self._results(value, await self._loader.load(self._key(value)))

    def _key(self, value: Any) -> tuple[Any, ...]:
        found = self._key_of(value)
        key: tuple[Any, ...] = found if isinstance(found, tuple) else (found,)
        if len(key) != self._width:
            raise ValueError(
                f"{_NAME}: the key of a record is {bounded_repr(key)}, which has {len(key)} "
                f"values for the key columns {list(self.settings.keys)}"
            )
        return key

    def timeout(self, value: Any) -> list[Any]:
        """Raises: TimeoutError."""
        raise TimeoutError(
            f"{_NAME}: the table {str(self.settings)!r} gave no rows within the timeout of "
            f"the join, for the record {bounded_repr(value)}. An index on the key columns, a "
            "longer timeout or a smaller capacity may help."
        )

    def close(self) -> None:
        self._loader.close()
        self._table.close()

    def on_loaded(self, found: Mapping[Hashable, Rows], load_ms: int) -> None:
        """Keep what was found. On the event loop's thread."""
        self._figures.loads.inc()
        self._figures.load_ms = load_ms
        if self._cache is not None:
            for key, rows in found.items():
                self._cache.put(key, rows)

    def on_failed(self) -> None:
        """Count a query that failed. On the event loop's thread."""
        self._figures.loads.inc()
        self._figures.failures.inc()


@dataclass(frozen=True, slots=True)
class _Pairs:
    is_left: bool

    def __call__(self, value: Any, rows: Rows) -> list[Any]:
        if rows:
            return [(value, row) for row in rows]
        return [(value, None)] if self.is_left else []


@dataclass(frozen=True, slots=True)
class _JoinedRows:
    """Rows with the fields of the record and the columns that were found. `count`, `width`: how many these are."""

    names: tuple[str, ...]
    count: int
    width: int
    is_left: bool

    def __call__(self, value: Any, rows: Rows) -> list[Any]:
        if not rows and self.is_left:
            rows = ((None,) * self.width,)
        mine = tuple(value)
        if len(mine) != self.count:
            raise ValueError(
                f"lookup_join: a record has {len(mine)} fields, its type {self.count}: "
                f"{bounded_repr(value)}"
            )
        found = [make_row(self.names, (*mine, *row)) for row in rows]
        if isinstance(value, Row):
            kind = value.get_row_kind()
            for row in found:
                row.set_row_kind(kind)
        return found


@dataclass(frozen=True, slots=True)
class _FieldsAt:
    places: tuple[int, ...]

    def __call__(self, value: Any) -> tuple[Any, ...]:
        return tuple(value[place] for place in self.places)


@dataclass(frozen=True, slots=True)
class _FieldsNamed:
    names: tuple[str, ...]

    def __call__(self, value: Any) -> tuple[Any, ...]:
        return tuple(value[name] for name in self.names)


def _key_function(key: KeyOf | Sequence[str]) -> KeyOf:
    return key if callable(key) else _FieldsNamed(tuple(key))


def _may_retry(error: BaseException) -> bool:
    return isinstance(error, ExternalError) and is_transient(error)


def _check_how(how: str) -> None:
    if how not in {"inner", "left"}:
        raise ConfigurationError(f'a lookup join is "inner" or "left", got {how!r}.')


def _names(setter: str, names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not names or not all(isinstance(one, str) for one in names):
        raise ConfigurationError(f"{_NAME}.{setter}: expected a list of names, got {names!r:.200}.")
    if len(set(names)) != len(names):
        raise ConfigurationError(f"{_NAME}.{setter}: a name is there twice: {list(names)}.")
    return tuple(names)
