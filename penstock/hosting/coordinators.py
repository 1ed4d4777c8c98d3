"""Source enumerators and sink committers of a job: user code on the driver, on one thread of its own.

Source: Flink SourceCoordinator, SplitAssignmentTracker. The JobManager's loop calls in and is called back
through `Callbacks`; it never waits for this thread.
"""

from __future__ import annotations

import functools
import queue
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from penstock.hosting.closures import deserialize, serialize
from penstock.machines.split_assignment import SplitAssignmentTracker
from penstock.machines.watermark_alignment import WatermarkAlignment
from penstock.model.ids import AttemptId, ExecutionVertexId, JobId, VertexId
from penstock.model.messages import (
    AddSplits,
    Committable,
    FailureInfo,
    MaxAllowedWatermark,
    NoMoreSplits,
    ReportedWatermark,
    SplitRequest,
)
from penstock.runtime.checkpoint.two_phase_commit import RETRY_AFTER_MS
from penstock.runtime.sink import Committer, Sink
from penstock.runtime.source import Source, SplitEnumerator
from penstock.runtime.source_operator import SourceOperator
from penstock.runtime.watermarks import AlignmentParams

_CLOSE_TIMEOUT_S: Final = 5.0


class Callbacks(Protocol):
    """What coordinators tell the JobManager; thread-safe."""

    def send_to_task(self, attempt_id: AttemptId, message: object) -> None: ...
    def fail_job(self, failure: FailureInfo) -> None: ...
    def job_finalized(self) -> None: ...


@dataclass(frozen=True, slots=True)
class CoordinatedVertex:
    """A job vertex with the live object that its operator `node_id` brings along."""

    vertex_id: VertexId
    node_id: int
    name: str
    parallelism: int
    coordinator: object
    alignment: AlignmentParams | None = None


@dataclass(slots=True)
class _SourceState:
    """One source: its enumerator, its readers, and who has which splits."""

    place: CoordinatedVertex
    source: Source
    enumerator: SplitEnumerator | None = None
    readers: dict[int, AttemptId] = field(default_factory=dict)
    assigned: SplitAssignmentTracker = field(default_factory=SplitAssignmentTracker)


class Coordinators:
    """All coordinators of one job. Calls return at once; work is done in order on one thread."""

    def __init__(
        self, job_id: JobId, places: Sequence[CoordinatedVertex], callbacks: Callbacks
    ) -> None:
        self._job_prefix = job_prefix_of(job_id)
        self._callbacks = callbacks
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # A daemon: an enumerator that blocks for ever must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name="penstock-coordinator", daemon=True)
        self._thread.start()
        self._is_closed = False
        self._timers: set[threading.Timer] = set()
        self._sources: dict[int, _SourceState] = {}
        self._groups: dict[str, WatermarkAlignment] = {}
        self._committers: dict[int, Committer] = {}
        for place in places:
            if isinstance(place.coordinator, Source):
                self._sources[place.node_id] = _SourceState(place, place.coordinator)
        self._committers.update(committers_of(places))

    # ------------------------------------------------------------------ called by the loop

    def start(self) -> None:
        for state in self._sources.values():
            self._submit(state.place.name, functools.partial(self._start_source, state))

    def from_reader(self, message: SplitRequest | ReportedWatermark) -> None:
        """What a source's reader asks or tells."""
        state = self._sources[message.node_id]
        if isinstance(message, SplitRequest):
            self._submit(state.place.name, lambda: self._handle_request(state, message))
        else:
            self._submit(state.place.name, lambda: self._note_watermark(state, message))

    def reset(self, vertices: Sequence[ExecutionVertexId]) -> None:
        """These subtasks start again: their splits go back."""
        for state in self._sources.values():
            subtasks = [v.subtask for v in vertices if v.vertex_id == state.place.vertex_id]
            if subtasks:
                give_back = functools.partial(self._give_back, state, subtasks)
                self._submit(state.place.name, give_back)

    def finalize(self, committables: Sequence[Committable]) -> None:
        """Commit, then tell the JobManager."""

        def commit() -> None:
            commit_all(self._committers, committables, self._job_prefix)
            self._callbacks.job_finalized()

        self._submit("commit of the job's results", commit)

    def close(self, *, is_committed: bool) -> None:
        """End everything; without a commit, drop what attempts left behind. Waits a bounded time."""
        self._is_closed = True
        for timer in list(self._timers):
            timer.cancel()
        self._work.put(functools.partial(self._close_all, is_committed=is_committed))
        self._work.put(None)
        self._thread.join(_CLOSE_TIMEOUT_S)

    # ------------------------------------------------------------------ on the coordinator's thread

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _close_all(self, *, is_committed: bool) -> None:
        """Each whatever the others do: the job's outcome stands."""
        closes: list[Callable[[], None]] = [
            state.enumerator.close
            for state in self._sources.values()
            if state.enumerator is not None
        ]
        if not is_committed:
            closes += [
                functools.partial(c.abort, self._job_prefix) for c in self._committers.values()
            ]
        for close in closes:
            try:
                close()
            except Exception:
                traceback.print_exc()

    def _start_source(self, state: _SourceState) -> None:
        state.enumerator = state.source.create_enumerator(_EnumeratorContext(self, state))
        state.enumerator.start()
        alignment = state.place.alignment
        if alignment is not None:
            announce = functools.partial(self._announce, state, alignment)
            self.call_periodically(state.place.name, alignment.update_interval_ms, announce)

    def _group(self, alignment: AlignmentParams) -> WatermarkAlignment:
        return self._groups.setdefault(alignment.group, WatermarkAlignment())

    def _note_watermark(self, state: _SourceState, report: ReportedWatermark) -> None:
        subtask, alignment = report.attempt_id.subtask, state.place.alignment
        if alignment is not None and state.readers.get(subtask) == report.attempt_id:
            self._group(alignment).report((state.place.node_id, subtask), report.watermark_ms)

    def _announce(self, state: _SourceState, alignment: AlignmentParams) -> None:
        allowed_ms = self._group(alignment).max_allowed_ms(alignment.max_drift_ms)
        if allowed_ms is None:
            return
        for attempt_id in state.readers.values():
            message = MaxAllowedWatermark(attempt_id, state.place.node_id, allowed_ms)
            self._callbacks.send_to_task(attempt_id, message)

    def _handle_request(self, state: _SourceState, request: SplitRequest) -> None:
        if state.enumerator is None:
            return
        subtask = request.attempt_id.subtask
        if state.readers.get(subtask) != request.attempt_id:
            state.readers[subtask] = request.attempt_id
            state.enumerator.add_reader(subtask)
        state.enumerator.handle_split_request(subtask, request.host)

    def _give_back(self, state: _SourceState, subtasks: Sequence[int]) -> None:
        if state.enumerator is None:
            return
        for subtask in subtasks:
            state.readers.pop(subtask, None)
            if state.place.alignment is not None:
                self._group(state.place.alignment).forget((state.place.node_id, subtask))
        for subtask in subtasks:
            splits = state.assigned.reset(subtask)
            if splits:
                state.enumerator.add_splits_back(splits, subtask)

    def assign(self, state: _SourceState, subtask: int, splits: Sequence[Any]) -> None:
        attempt_id = state.readers.get(subtask)
        if attempt_id is None or not splits:
            return
        state.assigned.assign(subtask, splits)
        message = AddSplits(attempt_id, state.place.node_id, serialize(list(splits)))
        self._callbacks.send_to_task(attempt_id, message)

    def no_more_splits(self, state: _SourceState, subtask: int) -> None:
        attempt_id = state.readers.get(subtask)
        if attempt_id is not None:
            message = NoMoreSplits(attempt_id, state.place.node_id)
            self._callbacks.send_to_task(attempt_id, message)

    def call_periodically(self, name: str, period_ms: int, call: Callable[[], None]) -> None:
        if self._is_closed:
            return

        def fire() -> None:
            self._timers.discard(timer)
            self._submit(name, call)
            self.call_periodically(name, period_ms, call)

        timer = threading.Timer(period_ms / 1000, fire)
        timer.daemon = True
        self._timers.add(timer)
        timer.start()

    def _submit(self, name: str, work: Callable[[], None]) -> None:
        def guarded() -> None:
            if self._is_closed:
                return
            try:
                work()
            except Exception as error:
                text = "".join(traceback.format_exception(error)).rstrip()
                where = f"  in coordinator of: {name} (on the driver)"
                failure = FailureInfo(type(error).__name__, f"{text}\n{where}", is_user_code=True)
                self._callbacks.fail_job(failure)

        self._work.put(guarded)


class _EnumeratorContext:
    """`runtime.source.EnumeratorContext` for one source."""

    def __init__(self, coordinators: Coordinators, state: _SourceState) -> None:
        self._coordinators = coordinators
        self._state = state

    def parallelism(self) -> int:
        return self._state.place.parallelism

    def registered_readers(self) -> Sequence[int]:
        return sorted(self._state.readers)

    def assign_splits(self, subtask: int, splits: Sequence[Any]) -> None:
        self._coordinators.assign(self._state, subtask, splits)

    def signal_no_more_splits(self, subtask: int) -> None:
        self._coordinators.no_more_splits(self._state, subtask)

    def call_periodically(self, period_ms: int, call: Callable[[], None]) -> None:
        self._coordinators.call_periodically(self._state.place.name, period_ms, call)


def job_prefix_of(job_id: JobId) -> str:
    """What the names of all hidden files of a job start with."""
    return job_id[:16]


def committers_of(places: Sequence[CoordinatedVertex]) -> dict[int, Committer]:
    """By node, of the sinks that have one."""
    made = {
        place.node_id: place.coordinator.create_committer()
        for place in places
        if isinstance(place.coordinator, Sink)
    }
    return {node_id: committer for node_id, committer in made.items() if committer is not None}


def commit_all(
    committers: Mapping[int, Committer],
    committables: Sequence[Committable],
    job_prefix: str,
    wait_s: Callable[[float], None] = time.sleep,
) -> None:
    """Make these visible and drop what else the job's attempts left behind. May be done again.

    Waits where a committer puts something off; it is the committer's to give up.
    """
    by_node: dict[int, list[bytes]] = {}
    for committable in committables:
        by_node.setdefault(committable.node_id, []).append(committable.payload)
    for node_id, committer in committers.items():
        put_off = committer.commit([deserialize(data) for data in by_node.get(node_id, [])])
        while put_off:
            wait_s(RETRY_AFTER_MS / 1000)
            put_off = committer.commit(put_off)
        committer.abort(job_prefix)


def coordinated_vertices(
    vertices: Mapping[VertexId, Any], nodes: Mapping[int, Any]
) -> list[CoordinatedVertex]:
    """Where the live coordinators of a program ended up in the JobGraph."""
    return [
        CoordinatedVertex(
            vertex.vertex_id, info.node_id, info.name, vertex.parallelism,
            nodes[info.node_id].coordinator, alignment_of(nodes[info.node_id].operator),
        )
        for vertex in vertices.values()
        for info in vertex.operators
        if nodes[info.node_id].coordinator is not None
    ]  # fmt: skip


def alignment_of(operator: object) -> AlignmentParams | None:
    """Of a source operator whose watermark strategy has one."""
    if not isinstance(operator, SourceOperator):
        return None
    return operator.watermark_strategy.alignment
