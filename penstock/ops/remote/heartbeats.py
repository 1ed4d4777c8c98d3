"""Tells a session that the client of a job lives, also while it reads no rows. A session cancels a job whose client is silent for long.

Source: Flink ClientUtils.reportHeartbeatPeriodically; differs: for jobs whose rows the client collects, attached or not.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

from penstock.engine.hosting.os.clock import wall_ms
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.ids import JobId
from penstock.engine.model.options.rest import ClientOptions
from penstock.ops.remote.client import RemoteError, RestClient

_GONE: Final = frozenset({403, 404, 410})


@dataclass(frozen=True, slots=True)
class HeartbeatTimes:
    """In ms. `timeout_ms`: without a sign of life for so long, the session cancels the job."""

    interval_ms: int = 30_000
    timeout_ms: int = 180_000


def heartbeat_times_of(settings: Settings) -> HeartbeatTimes:
    """Raises ConfigurationError: the session would cancel the job between two heartbeats."""
    interval_ms = settings.get(ClientOptions.HEARTBEAT_INTERVAL)
    timeout_ms = settings.get(ClientOptions.HEARTBEAT_TIMEOUT)
    if not 0 < interval_ms < timeout_ms:
        raise ConfigurationError(
            f"'{ClientOptions.HEARTBEAT_INTERVAL.key}' is {interval_ms} ms and "
            f"'{ClientOptions.HEARTBEAT_TIMEOUT.key}' {timeout_ms} ms, but the interval must be "
            "above 0 and below the timeout, or the session cancels jobs whose clients live. "
            "Change one of them."
        )
    return HeartbeatTimes(interval_ms, timeout_ms)


class LivingReader:
    """Batches of rows. As long as somebody has this iterator, and it has not ended, the session hears of its client."""

    def __init__(
        self, batches: Iterator[list[Any]], rest: RestClient, job_id: JobId, times: HeartbeatTimes
    ) -> None:
        self._batches = batches
        # Python's collector may run within any call, so what it calls may wait for no lock.
        over: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._end = weakref.finalize(self, over.put, None)
        threading.Thread(
            target=_beat,
            args=(rest, job_id, times, over),
            name="penstock-client-heartbeat",
            daemon=True,
        ).start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[Any]:
        try:
            return next(self._batches)
        except BaseException:
            self._end()
            raise


def _beat(
    rest: RestClient, job_id: JobId, times: HeartbeatTimes, over: queue.SimpleQueue[None]
) -> None:
    """Until it is over, or the session does not know the job. One that does not answer is told again, as it may be started again."""
    while True:
        expires = wall_ms() + times.timeout_ms
        try:
            rest.change("PATCH", f"/jobs/{job_id}/clientHeartbeat", {"expiredTimestamp": expires})
        except RemoteError as error:
            if error.status in _GONE:
                return
        with contextlib.suppress(queue.Empty):
            over.get(timeout=times.interval_ms / 1000)
            return
