"""A job that runs in a session, as its client sees it: `engine.model.program.JobControl` over REST.

Source: Flink ClusterClientJobClientAdapter. As there, the job outlives its client, unless `execution.shutdown-on-attached-exit` is true:
then Ctrl-C cancels it, as it does without a session.

Reports to a session that the client of a job lives, also while it reads no rows. A session cancels a job whose client is
silent for long.

Source: Flink ClientUtils.reportHeartbeatPeriodically; differs: for jobs whose rows the client collects, attached or not.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from penstock.engine.hosting.os.clock import wall_ms
from penstock.engine.hosting.os.waiting import Interruptible, awaited, interrupted, wait_for_end
from penstock.engine.model.checkpoints import (
    CheckpointStatistics,
    CheckpointSummary,
    CheckpointType,
)
from penstock.engine.model.config import Settings
from penstock.engine.model.elastic import (
    JobResourceRequirements,
    ParallelismBounds,
    requirements_from_plain,
    requirements_to_plain,
)
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.ids import JobId, VertexId
from penstock.engine.model.messages import TaskIo
from penstock.engine.model.options.rest import ClientOptions
from penstock.engine.model.program import JobOutcome
from penstock.engine.model.states import JobStatus
from penstock.ops.remote.client import RemoteError, RestClient, pauses, polled, requirements_with
from penstock.ops.remote.rows import rows_of
from penstock.ops.remote.session_client import SessionClient

_GONE: Final = frozenset({403, 404, 410})


@dataclass(frozen=True, slots=True)
class HeartbeatTimes:
    """The times of heartbeats, in ms. `timeout_ms`: after this time without a sign of life the session cancels the job."""

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
    """Send heartbeats until the job is over or unknown. A session that does not answer may be started again."""
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


_PATIENCE_S: Final = 60.0
"""How long a session may not answer before its client gives up: as Flink's client, 20 times 3 s. Another one may take its place."""
_NOBODY: Final = 0
_NO_TOKEN: Final = 401
_NOT_FOUND: Final = 404
_STANDBY: Final = 503


class RemoteJob:
    """A job in a session.

    `is_attached` False: `execute` does not wait for it. `ends_with_client`: Ctrl-C cancels it.
    """

    def __init__(
        self,
        session: SessionClient,
        job_id: JobId,
        name: str,
        *,
        is_attached: bool = True,
        ends_with_client: bool = False,
        heartbeats: HeartbeatTimes | None = None,
    ) -> None:
        """`heartbeats`: of a client that collects rows; None: as usual."""
        self._heartbeats = heartbeats or HeartbeatTimes()
        self._session = session
        self.address = session.rest.address
        self._job_id = job_id
        self._path = f"/jobs/{job_id}"
        self._requirements = f"{self._path}/resource-requirements"
        self.is_attached = is_attached
        self._end = _End(self._look)
        short = job_id[:8]
        continues_at = (
            f"in the session at {session.rest.address}: `penstock cancel {short}` ends it, "
            f"`penstock stop {short}` with a savepoint"
        )
        self._interruptible = Interruptible(
            name,
            self.cancel,
            lambda: str(self.status()),
            f"`penstock stop {short}`",
            "" if ends_with_client else continues_at,
        )

    @property
    def job_id(self) -> JobId:
        return self._job_id

    def status(self) -> JobStatus:
        """Raises RemoteError: the session does not answer, or does not know the job."""
        if self._end.outcome is not None:
            return self._end.outcome.status
        for one in self._session.rest.get("/session")["jobs"]:
            if one["id"] == self._job_id and one["phase"] in {"WAITING", "INITIALISING"}:
                return JobStatus.INITIALIZING
            if one["id"] == self._job_id and one["status"] is not None:
                return JobStatus(one["status"])
        return JobStatus(self._session.rest.get(f"{self._path}/status")["status"])

    def wait(self, timeout_s: float | None = None) -> JobOutcome:
        """See `wait_for_end`. Raises RemoteError: the session is gone for good, or has forgotten the job."""
        with awaited(self._job_id):
            wait_for_end(self._end, timeout_s, self._interruptible)
        assert self._end.outcome is not None
        return self._end.outcome

    def cancel(self) -> None:
        """Raises RemoteError: the session does not answer, or the job has ended otherwise."""
        self._session.rest.change("PATCH", self._path, mode="cancel")

    def interrupted(self) -> bool:
        """Raises RemoteError: see `cancel`."""
        return interrupted(self._interruptible)

    def start_savepoint(
        self, kind: CheckpointType, directory: str | None
    ) -> Callable[[float | None], str]:
        """See `engine.model.program.JobControl`. Raises RemoteError."""
        if kind is CheckpointType.SAVEPOINT:
            path, body = "savepoints", {"target-directory": directory, "cancel-job": False}
        else:
            path, body = "stop", {"targetDirectory": directory}
            body["drain"] = kind is CheckpointType.STOP_DRAIN
        rest = self._session.rest
        asked = rest.change("POST", f"{self._path}/{path}", body)["request-id"]

        def wait(timeout_s: float | None) -> str:
            found = rest.result(f"{self._path}/savepoints/{asked}", _pauses(), timeout_s)
            if found is None:
                raise TimeoutError(f"the savepoint of job {self._job_id} is still being taken")
            return str(found["location"])

        return wait

    def resource_requirements(self) -> JobResourceRequirements:
        """Raises RemoteError."""
        found = requirements_from_plain(self._session.rest.get(self._requirements))
        return {VertexId(vertex): bounds for vertex, bounds in found.items()}

    def rescale(self, asked: Mapping[str, int | tuple[int, int]]) -> None:
        """See `engine.model.program.JobControl`. Raises RemoteError: also if the session refuses, with its reasons."""
        now = requirements_from_plain(self._session.rest.get(self._requirements))
        details = self._session.rest.get(self._path)
        self.require_resources(requirements_with(details, now, asked))

    def require_resources(self, asked: Mapping[str, ParallelismBounds]) -> None:
        """See `engine.model.program.JobControl`. Raises RemoteError: also if the session refuses, with its reasons."""
        plain = requirements_to_plain({VertexId(one): bounds for one, bounds in asked.items()})
        self._session.rest.change("PUT", self._requirements, plain)

    def checkpoints(self) -> CheckpointStatistics:
        """Return the statistics. REST has no times of single tasks: they are 0. Raises RemoteError."""
        return statistics_from(self._session.rest.get(f"{self._path}/checkpoints"))

    def task_metrics(self) -> list[tuple[str, int, TaskIo]]:
        raise ExternalError(
            "the metrics of a job in a session are not handed to its client as a whole. Ask for "
            f"those you need: `penstock metrics {self._job_id[:8]}`, or the REST API."
        )

    def collect(self, stream: str, *, shows_error: bool = True) -> Iterator[list[Any]]:
        self._interruptible.continues_at = ""  # It ends with the reader of its results.
        rows = rows_of(self._session, self._job_id, stream)
        return LivingReader(rows, self._session.rest, self._job_id, self._heartbeats)

    def _look(self) -> JobOutcome | None:
        """Ask once. None: the job has not ended."""
        try:
            answer = self._session.rest.get(f"{self._path}/execution-result")
        except RemoteError as error:
            if error.status != _NOT_FOUND:
                raise
            return self._as_dispatched()
        if answer["status"]["id"] != "COMPLETED":
            return None
        result = answer["job-execution-result"]
        failure = result.get("failure-cause")
        return JobOutcome(
            _status_of(result["application-status"]),
            result["net-runtime"],
            None if failure is None else failure["stack-trace"],
        )

    def _as_dispatched(self) -> JobOutcome | None:
        """What the Dispatcher knows of a job that nobody observes: it does not run yet, or has ended in a former session."""
        for one in self._session.rest.get("/session")["jobs"]:
            if one["id"] == self._job_id:
                ended = one["status"]
                return None if ended is None else JobOutcome(JobStatus(ended), 0)
        raise RemoteError(
            f"the session at {self._session.rest.address} does not know job {self._job_id}: it "
            "has ended and was forgotten, or the session was started again without high "
            "availability.",
            _NOT_FOUND,
        )


class _End:
    """The end of a job, found by asking: what `threading.Event` is for a job of this process."""

    def __init__(self, look: Callable[[], JobOutcome | None]) -> None:
        self._ask = look
        self._silent_since_s: float | None = None
        self._pauses = _pauses()
        self.outcome: JobOutcome | None = None

    def is_set(self) -> bool:
        return self.outcome is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Ask again and again. Raises RemoteError: nobody has answered for a long time, or the job is not known."""
        self.outcome = self.outcome or polled(self._look, self._pauses, timeout)
        return self.outcome is not None

    def _look(self) -> JobOutcome | None:
        try:
            found = self._ask()
        except RemoteError as error:
            if error.status not in {_NOBODY, _STANDBY, _NO_TOKEN}:
                raise
            now_s = time.monotonic()
            self._silent_since_s = self._silent_since_s or now_s
            if now_s - self._silent_since_s >= _PATIENCE_S:
                raise
            return None
        self._silent_since_s = None
        return found


def _pauses() -> Iterator[float]:
    return pauses(0.02, 0.5)


def _status_of(application_status: str) -> JobStatus:
    known = {"SUCCEEDED": JobStatus.FINISHED, "UNKNOWN": JobStatus.SUSPENDED}
    return known.get(application_status) or JobStatus(application_status)


def statistics_from(answer: Mapping[str, Any]) -> CheckpointStatistics:
    """Return the statistics from the answer of `/jobs/:jobid/checkpoints`."""
    counts, latest = answer["counts"], answer["latest"]

    def summary(entry: Mapping[str, Any] | None) -> CheckpointSummary | None:
        return None if entry is None else _summary(entry)

    ended = [one for one in reversed(answer["history"]) if one["status"] != "IN_PROGRESS"]
    return CheckpointStatistics(
        in_progress=counts["in_progress"],
        completed=counts["completed"],
        failed=counts["failed"],
        restored=counts["restored"],
        latest_completed=summary(latest["completed"]),
        latest_savepoint=summary(latest["savepoint"]),
        latest_failed=summary(latest["failed"]),
        history=tuple(map(_summary, ended)),
    )


def _summary(entry: Mapping[str, Any]) -> CheckpointSummary:
    kind = CheckpointType.SAVEPOINT if entry["is_savepoint"] else CheckpointType.CHECKPOINT
    return CheckpointSummary(
        checkpoint_id=entry["id"],
        checkpoint_type=kind,
        triggered_at_ms=entry["trigger_timestamp"],
        duration_ms=entry["end_to_end_duration"],
        size_bytes=entry["state_size"],
        alignment_ms=0.0,
        sync_ms=0.0,
        async_ms=0.0,
        location=entry.get("external_path"),
        failure=entry.get("failure_message"),
        written_bytes=entry["checkpointed_size"],
    )
