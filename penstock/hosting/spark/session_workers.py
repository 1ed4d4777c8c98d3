"""The shared workers of Spark sessions: made when the first job wants some, ended with the session and with the program."""

from __future__ import annotations

import atexit
import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import Final

from pyspark import SparkContext

from penstock.hosting.spark.slots import STOPPED
from penstock.hosting.spark.worker_launcher import SparkLauncher
from penstock.hosting.wire.addresses import Endpoint
from penstock.hosting.wire.tls import new_identity
from penstock.hosting.workers.shared_workers import SharedWorkers
from penstock.model.messages.workers import WorkerKind

_END_WAIT_S: Final = 3.0
"""How long a session that stops, or a program that ends, waits for idle workers."""

_Key = tuple[Endpoint, bool]


class _Sessions:
    """Pools by session, and then by where they are dialled and whether they are encrypted. They differ only if jobs do."""

    lock = threading.Lock()
    pools: Final[weakref.WeakKeyDictionary[SparkContext, dict[_Key, SharedWorkers]]] = (
        weakref.WeakKeyDictionary()
    )
    number: int = 0
    ends_at_exit: bool = False


def workers_of(context: SparkContext, endpoint: Endpoint, *, is_encrypted: bool) -> SharedWorkers:
    """Return the pool of a session. Raises: ExternalError: there is no port to listen at."""
    with _Sessions.lock:
        pools = _Sessions.pools.get(context)
        if pools is None:
            pools = _Sessions.pools[context] = {}
            _end_before(context)
        if not _Sessions.ends_at_exit:
            _Sessions.ends_at_exit = True
            atexit.register(_end_all)
        key = endpoint, is_encrypted
        found = pools.get(key)
        if found is None or not found.is_open:
            _Sessions.number += 1
            launcher = SparkLauncher(context, f"workers-{_Sessions.number}")
            found = SharedWorkers(endpoint, launcher, new_identity() if is_encrypted else None)
            found.start()
            pools[key] = found
        return found


def idle_workers(context: SparkContext) -> list[WorkerKind]:
    """Return the kinds of the idle workers of a session, one for each: they hold task slots."""
    return [kind for pool in _pools_of(context) for kind in pool.idle()]


def make_room(context: SparkContext, workers: int, kind: WorkerKind | None = None) -> None:
    """End so many idle workers of a session, because others need their task slots. `kind`: whose stay. Returns at once."""
    for pool in _pools_of(context):
        pool.make_room(workers, kind)


def _pools_of(context: SparkContext) -> list[SharedWorkers]:
    with _Sessions.lock:
        return [one for one in _Sessions.pools.get(context, {}).values() if one.is_open]


def _end_before(context: SparkContext) -> None:
    """Have the session end idle workers before it stops: Spark would kill them, and complain of it in its log."""
    stop: Callable[[], None] = context.stop

    def ends() -> None:
        _end(context)
        stop()

    context.stop = ends


def _end(context: SparkContext) -> None:
    for pool in _pools_of(context):
        with contextlib.suppress(Exception):  # Whatever is wrong with it, the session stops.
            pool.close(STOPPED, _END_WAIT_S)


def _end_all() -> None:
    for context in list(_Sessions.pools):
        _end(context)
