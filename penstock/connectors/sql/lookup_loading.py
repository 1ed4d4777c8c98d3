"""Loads rows for keys that are asked for one by one: what is asked for at the same time becomes one call.

Keys wait until the event loop has run everything that can run, so the keys of one batch of records come together; and while all
connections are busy, so that a slow database gets fewer and larger calls. Does not know databases.
Source: the DataLoader pattern; Flink's `lookup.max-retries`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from penstock.engine.hosting.os.worker_thread import WorkerThreads

CLOSE_TIMEOUT_S: Final = 1.0
RETRY_DELAY_S: Final = 1.0
"""Times the number of the try, as in Flink."""

Rows: TypeAlias = Sequence[Any]
Read: TypeAlias = Callable[[Sequence[Hashable]], Mapping[Hashable, Rows]]


class LoadObserver(Protocol):
    """Hears of calls, on the loop's thread."""

    def on_loaded(self, found: Mapping[Hashable, Rows], load_ms: int) -> None: ...
    def on_failed(self) -> None: ...


class BatchLoader:
    """All methods but `close` are called on one event loop."""

    def __init__(
        self,
        read: Read,
        observer: LoadObserver,
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
        """Calls under way are left behind."""
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
