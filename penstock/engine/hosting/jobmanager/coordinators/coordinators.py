"""Source enumerators and sink committers of a job: user code on the driver, on one thread of its
own.

Source: Flink SourceCoordinator's executor, OperatorCoordinatorHolder. The JobManager's loop calls
in, and is called back through `Callbacks`; it never waits for this thread. Messages to tasks pass
through the loop in the order of the calls. So a split that was assigned after a snapshot reaches
its reader after the order to take that snapshot.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from penstock.engine.hosting.jobmanager.coordinators.source_coordinator import (
    CoordinatedVertex,
    SourceCoordinator,
)
from penstock.engine.hosting.os.worker_thread import WorkerThreads
from penstock.engine.hosting.reporting.logs.driver import thread_belongs_to
from penstock.engine.hosting.shipping.main_classes import find_by_name
from penstock.engine.hosting.shipping.pickling import loads_records
from penstock.engine.machines.sources import WatermarkAlignment
from penstock.engine.model import messages
from penstock.engine.model.errors import ExternalError, RefusedForGood, UserError, may_recover
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, JobId, VertexId
from penstock.engine.model.metrics import Measured, MetricType
from penstock.engine.model.texts.bounded_text import bounded_str
from penstock.engine.model.texts.error_text import traceback_of
from penstock.engine.runtime.checkpoint.two_phase_commit import RETRY_AFTER_MS, CommitFigures
from penstock.engine.runtime.sink import Committer, Sink
from penstock.engine.runtime.sources.contract import Source
from penstock.engine.runtime.sources.operator import SourceOperator
from penstock.engine.runtime.watermarks.strategy import AlignmentParams

_CLOSE_TIMEOUT_S: Final = 5.0
_DROP_TRIES: Final = 5
_LOG: Final = logging.getLogger(__name__)

Answer: TypeAlias = "Callable[[tuple[tuple[str, bytes], ...], str | None], None]"
"""Called with (uid, state) of the coordinators that have state, and why the snapshot failed; None: it succeeded."""


class Callbacks(Protocol):
    """Calls of coordinators to the JobManager; thread-safe. They are carried out in order."""

    def send_to_task(self, attempt_id: AttemptId, message: object) -> None: ...
    def fail_job(self, failure: messages.FailureInfo) -> None: ...
    def job_finalized(self) -> None: ...


class Coordinators:
    """All coordinators of one job. Calls return at once; their work is done in order on one thread."""

    def __init__(
        self,
        job_id: JobId,
        places: Sequence[CoordinatedVertex],
        callbacks: Callbacks,
        classes: Sequence[type] = (),
    ) -> None:
        """`classes`: of the main script that submitted the job; a session has a main script of its own."""
        self._job_id = job_id
        self._job_prefix = job_prefix_of(job_id)
        self._callbacks = callbacks
        self._classes = classes
        self._worker = WorkerThreads("penstock-coordinator")
        self._is_closed = False
        self._timers: set[threading.Timer] = set()
        self.sources: dict[int, SourceCoordinator] = {}
        self._groups: dict[str, WatermarkAlignment] = {}
        for place in places:
            if isinstance(place.coordinator, Source):
                source = SourceCoordinator(place, place.coordinator, self)
                self.sources[place.node_id] = source
        self._committers = committers_of(places)
        self._sinks = {one.node_id: one for one in places if one.node_id in self._committers}
        self._commits = {node_id: CommitFigures() for node_id in self._sinks}

    # ------------------------------------------------------------------ called by the loop

    def start(self) -> None:
        """Start the coordinators that have not been restored."""
        for source in self.sources.values():
            self._submit(source.place.name, source.start)

    def from_reader(
        self, message: messages.SplitRequest | messages.SourceEvent | messages.ReportedWatermark
    ) -> None:
        """Pass on a message of a source's reader."""
        source = self.sources[message.node_id]
        if isinstance(message, messages.SplitRequest):
            self._submit(source.place.name, lambda: source.handle_request(message))
        elif isinstance(message, messages.SourceEvent):
            self._submit(source.place.name, lambda: source.handle_event(message))
        else:
            self._submit(source.place.name, lambda: source.note_watermark(message))

    def reset(
        self, vertices: Sequence[ExecutionVertexId], checkpoint_id: int | None = None
    ) -> None:
        """These subtasks start again, from the checkpoint or from nothing. Splits assigned after it
        go back to the enumerator.
        """
        for source in self.sources.values():
            subtasks = [v.subtask for v in vertices if v.vertex_id == source.place.vertex_id]
            if subtasks:
                give_back = functools.partial(source.give_back, subtasks, checkpoint_id)
                self._submit(source.place.name, give_back)

    def finalize(self, committables: Sequence[messages.Committable]) -> None:
        """Commit the results, then notify the JobManager."""

        def commit() -> None:
            commit_all(self._committers, committables, self._job_prefix, figures=self._commits)
            self._callbacks.job_finalized()

        self._submit("commit of the job's results", commit)

    def snapshot(self, checkpoint_id: int, answer: Answer) -> None:
        """Take the state of all. `answer` is called once: on their thread, or on this one when they are closed."""
        if self._is_closed:
            answer((), "the job is ending")
        else:
            self._worker.put(lambda: self._snapshot(checkpoint_id, answer))

    def checkpoint_ended(self, checkpoint_id: int, *, is_completed: bool) -> None:
        """Notify the sources of a completed checkpoint. Splits of an aborted one belong to the next
        checkpoint.
        """
        if is_completed:
            for source in self.sources.values():
                self._submit(source.place.name, functools.partial(source.complete, checkpoint_id))

    def restore(
        self, states: Sequence[tuple[str, bytes]], kept: Container[VertexId] = frozenset()
    ) -> None:
        """All begin again with their state, found by uid, but those of vertices that are `kept`. Those without state begin from nothing."""
        found = dict(states)
        for source in self.sources.values():
            if source.place.vertex_id not in kept:
                state = found.get(source.place.uid)
                self._submit(source.place.name, functools.partial(source.restore, state))

    def rescale(self, parallelism: Mapping[VertexId, int]) -> None:
        """Set the parallelism of these vertices. Their enumerators have to be restored after this
        call; others stay as they are.
        """
        for source in self.sources.values():
            count = parallelism.get(source.place.vertex_id)
            if count is not None:
                self._submit(source.place.name, functools.partial(source.rescale, count))

    def measured(self) -> list[tuple[CoordinatedVertex, list[Measured]]]:
        """The metrics of each coordinator that has any, with its place in the job. Any thread."""
        found = [(source.place, source.measured()) for source in self.sources.values()]
        for node_id, figures in self._commits.items():
            found.append((self._sinks[node_id], _measured_commits(figures)))
        return found

    def close(self, *, is_committed: bool) -> None:
        """End all coordinators within a bounded time. Without a commit, remove what attempts have
        left.
        """
        self._is_closed = True
        for timer in list(self._timers):
            timer.cancel()
        self._worker.put(functools.partial(self._close_all, is_committed=is_committed))
        self._worker.close(_CLOSE_TIMEOUT_S)

    # ------------------------------------------------------------------ on the coordinators' thread

    def _snapshot(self, checkpoint_id: int, answer: Answer) -> None:
        find_by_name(self._classes)
        states: list[tuple[str, bytes]] = []
        failure: str | None = None
        for source in self.sources.values():
            try:
                states.append((source.place.uid, source.snapshot(checkpoint_id)))
            except BaseException as error:
                # The enumerator and the committer are users' code, which may raise anything.
                text = traceback_of(error)
                failure = (
                    f"the enumerator of '{source.place.name}' could not take its snapshot: {text}"
                )
                break
        answer(tuple(states), failure)

    def _close_all(self, *, is_committed: bool) -> None:
        """Close each one, even if others fail: the outcome of the job does not change."""
        for source in self.sources.values():
            source.close()
        if is_committed:
            return
        for committer in self._committers.values():
            try:
                committer.abort(self._job_prefix)
            except Exception as error:  # The job has ended, and a database may raise anything.
                log_kept_leftovers(self._job_prefix, error)

    def _submit(self, name: str, work: Callable[[], None]) -> None:
        def guarded() -> None:
            if self._is_closed:
                return
            thread_belongs_to(self._job_id)
            find_by_name(self._classes)
            try:
                work()
            except BaseException as error:
                # The enumerator and the committer are users' code, which may raise anything.
                self._callbacks.fail_job(coordinator_failure(name, error))

        self._worker.put(guarded)

    # ------------------------------------------------------------------ Surroundings of source coordinators

    def send_to_task(self, attempt_id: AttemptId, message: object) -> None:
        self._callbacks.send_to_task(attempt_id, message)

    def group_of(self, alignment: AlignmentParams) -> WatermarkAlignment:
        return self._groups.setdefault(alignment.group, WatermarkAlignment())

    def call_periodically(
        self, name: str, period_ms: int, call: Callable[[], None], is_wanted: Callable[[], bool]
    ) -> None:
        if self._is_closed:
            return

        def fire() -> None:
            self._timers.discard(timer)
            if is_wanted():
                self._submit(name, call)
                self.call_periodically(name, period_ms, call, is_wanted)

        timer = threading.Timer(period_ms / 1000, fire)
        timer.daemon = True
        self._timers.add(timer)
        timer.start()


def job_prefix_of(job_id: JobId) -> str:
    """Return the prefix of the names of all hidden files of a job."""
    return job_id[:16]


def committers_of(places: Sequence[CoordinatedVertex]) -> dict[int, Committer]:
    """Return the committers of sinks that have one, by node."""
    made = {
        place.node_id: place.coordinator.create_committer()
        for place in places
        if isinstance(place.coordinator, Sink)
    }
    found = {node_id: committer for node_id, committer in made.items() if committer is not None}
    for place in places:
        if place.node_id in found:
            with contextlib.suppress(AttributeError):  # Users' own may be frozen, and need none.
                found[place.node_id].operator_id = place.uid
    return found


def commit_all(
    committers: Mapping[int, Committer],
    committables: Sequence[messages.Committable],
    job_prefix: str,
    wait_s: Callable[[float], None] = time.sleep,
    figures: Mapping[int, CommitFigures] | None = None,
) -> None:
    """Make committables visible, and drop what else the job's attempts have left. May be repeated.
    `figures`: by node; None: nobody counts.

    Waits while a committer postpones committables; the committer decides when to give up. Nothing
    is dropped before all of them have committed.
    """
    by_node: dict[int, list[bytes]] = {}
    for committable in committables:
        by_node.setdefault(committable.node_id, []).append(committable.payload)
    for node_id, committer in committers.items():
        counts = CommitFigures() if figures is None else figures[node_id]
        waiting: Sequence[object] = [loads_records(data) for data in by_node.get(node_id, [])]
        counts.total += len(waiting)
        put_off = counts.counted(committer.commit, waiting)
        while put_off:
            wait_s(RETRY_AFTER_MS / 1000)
            put_off = counts.counted(committer.commit, put_off)
    for committer in committers.values():
        _drop_leftovers(committer, job_prefix, wait_s)


def coordinator_failure(name: str, error: BaseException) -> messages.FailureInfo:
    """The failure of an enumerator or a committer. Penstock's own errors say everything in their text: their frames, and what a
    client library says of the cause, go to the log.
    """
    kind, text = type(error).__name__, traceback_of(error)
    if isinstance(error, ExternalError | UserError):
        _LOG.info("a coordinator failed: %s\n%s", name, text)
        text = f"{kind}: {bounded_str(error)}"
    return messages.FailureInfo(
        kind,
        f"{text}\n  in coordinator of: {name} (on the driver)",
        is_user_code=True,
        is_recoverable=may_recover(error),
    )


def log_kept_leftovers(job_prefix: str, error: Exception) -> None:
    """Log the text of a connector's error, without its stack."""
    if isinstance(error, ExternalError):
        _LOG.warning("job=%s leftovers=KEPT %s: %s", job_prefix, type(error).__name__, error)
    else:
        _LOG.warning("job=%s leftovers=KEPT", job_prefix, exc_info=error)


def _drop_leftovers(committer: Committer, job_prefix: str, wait_s: Callable[[float], None]) -> None:
    """All is committed: a server that is away now costs the job a line in the log, and not its outcome."""
    for tries_left in reversed(range(_DROP_TRIES)):
        try:
            committer.abort(job_prefix)
        except Exception as error:
            if not tries_left or isinstance(error, RefusedForGood):
                log_kept_leftovers(job_prefix, error)
                return
            wait_s(RETRY_AFTER_MS / 1000)
        else:
            return


def _measured_commits(figures: CommitFigures) -> list[Measured]:
    return [
        Measured(name, MetricType.COUNTER, count)
        for name, count in (
            ("totalCommittables", figures.total),
            ("successfulCommittables", figures.successful),
            ("retriedCommittables", figures.retried),
            ("failedCommittables", figures.failed),
            ("alreadyCommittedCommittables", 0),
        )
    ] + [Measured("pendingCommittables", MetricType.GAUGE, figures.total - figures.successful)]


def coordinated_vertices(
    vertices: Mapping[VertexId, Any], nodes: Mapping[int, Any]
) -> list[CoordinatedVertex]:
    """Return the coordinators of a program with their places in the JobGraph."""
    return [
        CoordinatedVertex(
            vertex.vertex_id, info.node_id, info.name, vertex.parallelism,
            nodes[info.node_id].coordinator, alignment_of(nodes[info.node_id].operator), info.uid,
        )
        for vertex in vertices.values()
        for info in vertex.operators
        if nodes[info.node_id].coordinator is not None
    ]  # fmt: skip


def alignment_of(operator: object) -> AlignmentParams | None:
    """Return the watermark alignment of a source operator, if it has one."""
    if not isinstance(operator, SourceOperator):
        return None
    return operator.watermark_strategy.alignment
