"""Runs one BATCH job: feeds events to its master and carries out the master's effects. Implements
`engine.model.program.JobControl`.

The master has one thread. Each running stage has a further thread, which waits for the host, and
the commit at the end has one too.

All splits of a bounded source are assigned before its stage starts. User code of enumerators and
committers runs on the driver. Each reader asks in turn until it gets the signal that there are no
more splits. So an enumerator assigns splits as in a streaming job whose readers are equally fast.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.engine.hosting.jobmanager.coordinators.coordinators import (
    commit_all,
    committers_of,
    job_prefix_of,
    log_kept_leftovers,
)
from penstock.engine.hosting.jobmanager.driver_streams import PRINT_STREAM, write_text
from penstock.engine.hosting.jobmanager.ha.packed_job import SubmittedJob
from penstock.engine.hosting.observer import (
    AllObservers,
    EngineFailed,
    JobEnded,
    JobObserver,
    JobTick,
)
from penstock.engine.hosting.os.clock import monotonic_ms
from penstock.engine.hosting.os.waiting import (
    Interruptible,
    Reader,
    awaited,
    interrupted,
    wait_for_end,
)
from penstock.engine.hosting.os.worker_thread import WorkerThreads
from penstock.engine.hosting.reporting.transition_log import log_attempt, log_status
from penstock.engine.hosting.shipping.pickling import loads_records
from penstock.engine.hosting.spark.batch.plan import Orders, Plan, Report, Stage, StageSettings
from penstock.engine.hosting.spark.batch.runner import (
    StageError,
    StageOrder,
    StageRunner,
    failure_of,
)
from penstock.engine.hosting.spark.batch.shuffle_records import driver_records
from penstock.engine.hosting.spark.dataframes.source import FrameSource
from penstock.engine.machines.batch import BatchMaster
from penstock.engine.model import messages
from penstock.engine.model.checkpoints import CheckpointStatistics, CheckpointType
from penstock.engine.model.errors import ConfigurationError, GraphError, JobExecutionError
from penstock.engine.model.graph.auto_parallelism import SubpartitionRange
from penstock.engine.model.ids import JobId, VertexId
from penstock.engine.model.messages import batch
from penstock.engine.model.program import JobOutcome, NotRescalable
from penstock.engine.model.states import JobStatus
from penstock.engine.runtime.sources.contract import Source


class _Readers:
    """`engine.runtime.sources.contract.EnumeratorContext`."""

    def __init__(self, name: str, parallelism: int) -> None:
        self._name = name
        self.splits: list[list[Any]] = [[] for _ in range(parallelism)]
        self.ended: set[int] = set()

    def parallelism(self) -> int:
        return len(self.splits)

    def registered_readers(self) -> Sequence[int]:
        return range(len(self.splits))

    def assign_splits(self, subtask: int, splits: Sequence[Any]) -> None:
        self.splits[subtask].extend(splits)

    def signal_no_more_splits(self, subtask: int) -> None:
        self.ended.add(subtask)

    def call_periodically(self, period_ms: int, call: Callable[[], None]) -> None:
        raise GraphError(
            f"the source '{self._name}' looks for new splits every {period_ms} ms and so "
            "has no end, but execution.runtime-mode is BATCH. Make the source bounded, or "
            "set the runtime mode to STREAMING."
        )


def splits_of(source: Source, name: str, parallelism: int) -> list[list[Any]]:
    """Return the splits of each subtask. Raises: GraphError: the source never ends; what the
    enumerator raises.
    """
    readers = _Readers(name, parallelism)
    enumerator = source.in_batch().create_enumerator(readers)
    try:
        enumerator.start()
        for subtask in range(parallelism):
            enumerator.add_reader(subtask)
        while len(readers.ended) < parallelism:
            before = sum(map(len, readers.splits)) + len(readers.ended)
            for subtask in range(parallelism):
                if subtask not in readers.ended:
                    enumerator.handle_split_request(subtask, "")
            if sum(map(len, readers.splits)) + len(readers.ended) == before:
                raise GraphError(
                    f"the enumerator of '{name}' neither assigns splits nor signals that "
                    "there are no more (waiting subtasks: "
                    f"{sorted(set(range(parallelism)) - readers.ended)}). The enumerator of a "
                    "bounded source must do one of the two whenever a reader asks."
                )
    finally:
        enumerator.close()
    return readers.splits


_TICK_S: Final = 0.5
_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Given:
    """What the subtasks have given to the driver."""

    committables: list[messages.Committable] = field(default_factory=list)
    reports: dict[tuple[VertexId, int], Report] = field(default_factory=dict)
    collected: dict[str, list[bytes]] = field(default_factory=dict)


class BatchJob(NotRescalable):
    """A BATCH job; begins with `start`. Its public methods may be called from any thread.

    `look`: returns the JobSnapshot of what is known of the job now; None: nobody records it.
    """

    why_not = (
        "a job in runtime mode BATCH cannot be rescaled: its stages choose their parallelism when "
        "they begin."
    )

    def __init__(
        self,
        job: SubmittedJob,
        plan: Plan,
        runner: StageRunner,
        observer: JobObserver,
        settings: StageSettings,
        look: Callable[[], Any] | None = None,
    ) -> None:
        self._job = job
        self._plan = plan
        self._runner = runner
        self._settings = settings
        self._observer = AllObservers(observer)
        self._master = BatchMaster(job.graph, monotonic_ms(), plan.places)
        self._worker = WorkerThreads(
            "penstock-batch",
            on_error=self._broke,
            tick=(_TICK_S, lambda: self._observer.observe(JobTick(self._master))),
        )
        self.ended = threading.Event()
        self._outcome: JobOutcome | None = None
        self._interruptible = Interruptible(job.graph.name, self.cancel, self.status)
        self.look = look
        self._logged_status = self._master.status
        self._started_ms = monotonic_ms()
        self._given = _Given()

    def start(self) -> None:
        self._on_event(batch.StartBatch())

    # ------------------------------------------------------------------ JobControl

    @property
    def job_id(self) -> JobId:
        return self._job.graph.job_id

    @property
    def master(self) -> BatchMaster:
        """The job's master, to look at its graph, states and attempts."""
        return self._master

    def status(self) -> JobStatus:
        return self._master.status

    def wait(self, timeout_s: float | None = None) -> JobOutcome:
        """See `wait_for_end`."""
        with awaited(self.job_id):
            return self._wait_for_end(timeout_s)

    def _wait_for_end(self, timeout_s: float | None) -> JobOutcome:
        wait_for_end(self.ended, timeout_s, self._interruptible)
        assert self._outcome is not None
        return self._outcome

    def cancel(self) -> None:
        self._on_event(batch.CancelBatch())

    def interrupted(self) -> bool:
        return interrupted(self._interruptible)

    def start_savepoint(
        self, kind: CheckpointType, directory: str | None
    ) -> Callable[[float | None], str]:
        raise ConfigurationError(
            "a job in runtime mode BATCH takes no savepoints: after a failure it continues "
            "from the results of its stages. Run it with RuntimeExecutionMode.STREAMING to "
            "take savepoints."
        )

    def checkpoints(self) -> CheckpointStatistics:
        return CheckpointStatistics()

    def task_metrics(self) -> list[tuple[str, int, messages.TaskIo]]:
        """Counters of the subtasks that have finished."""
        names = {vertex_id: vertex.name for vertex_id, vertex in self._job.graph.vertices.items()}
        return [
            (names[vertex_id], subtask, report.io)
            for (vertex_id, subtask), report in sorted(self._given.reports.items())
        ]

    def collect(self, stream: str, *, shows_error: bool = True) -> Iterator[list[Any]]:
        """Return the collected rows once the job has ended: a result counts only when it is
        complete.
        """
        return self._rows(stream, Reader(self.job_id) if shows_error else None)

    def take_rows(self, stream: str) -> tuple[bytes | None, bool]:
        """Return the next pickled rows if there are any, and whether none come any more: before the end of the job there are none."""
        if not self.ended.is_set() or self.failure_text() is not None:
            return None, self.ended.is_set()
        rest = self._given.collected.get(stream, [])
        return (rest.pop(0), False) if rest else (None, True)

    def failure_text(self) -> str | None:
        """Return why the job has not finished; None: it has, or runs."""
        outcome = self._outcome
        if outcome is None or outcome.status is JobStatus.FINISHED:
            return None
        return outcome.failure or f"the job is {outcome.status}"

    def _rows(self, stream: str, reader: Reader | None) -> Iterator[list[Any]]:
        """The reader lets go with the generator."""
        outcome = self._wait_for_end(None) if reader is None else self.wait()
        if outcome.status is not JobStatus.FINISHED:
            raise JobExecutionError(outcome.failure or f"the job is {outcome.status}")
        for payload in self._given.collected.get(stream, ()):
            yield loads_records(payload)

    # ------------------------------------------------------------------ the master's thread

    def _feed(self, event: Callable[[], Sequence[batch.BatchEffect]]) -> None:
        self._worker.put(lambda: self._step(event))

    def _step(self, event: Callable[[], Sequence[batch.BatchEffect]]) -> None:
        if self.ended.is_set():
            return
        for effect in event():
            self._carry_out(effect)
        if self._master.status.is_terminal:
            self._end(self._master.status, self._master.failure)

    def _broke(self, error: BaseException) -> None:
        """End the job and report the error: the master itself failed."""
        self._observer.observe(EngineFailed(error))
        text = "".join(traceback.format_exception(error))
        self._end(JobStatus.FAILED, messages.FailureInfo(type(error).__name__, text))

    def _end(self, status: JobStatus, failure: messages.FailureInfo | None) -> None:
        if status is not JobStatus.FINISHED:
            self._drop_leftovers()
        self._runner.close()
        text = None if failure is None else failure.text
        self._outcome = JobOutcome(status, monotonic_ms() - self._started_ms, text)
        self._worker.close(drops=True)
        self._observer.observe(JobEnded(status, self._master))
        self.ended.set()

    def _carry_out(self, effect: batch.BatchEffect) -> None:
        match effect:
            case batch.RunStage(vertex_id, ranges):
                stage = self._plan.stage(vertex_id)
                _start(
                    f"stage-{stage.vertex.name[:40]}",
                    functools.partial(self._run_stage, stage, ranges),
                )
            case batch.CancelStage(vertex_id):
                self._runner.cancel(vertex_id)
            case batch.CommitResults():
                _start("commit", self._commit)
            case messages.ExecutionStateChanged():
                log_attempt(_LOG, self.job_id, effect)
                self._observer.observe(effect)
            case messages.JobStatusChanged():
                log_status(_LOG, self.job_id, self._logged_status, effect.status, effect.failure)
                self._logged_status = effect.status
                self._observer.observe(effect)

    def _on_event(self, event: batch.BatchEvent) -> None:
        self._feed(lambda: self._master.step(event, monotonic_ms()))

    def _commit(self) -> None:
        """Runs on its own thread: file systems and databases may take their time."""
        failure = None
        try:
            committers = committers_of(self._job.coordinated)
            commit_all(committers, self._given.committables, job_prefix_of(self.job_id))
            self._print()
        except Exception as error:
            # Errors of a file system or a database: the job fails with them.
            failure = failure_of(error)
        self._on_event(batch.ResultsCommitted(failure))

    def _print(self) -> None:
        for payload in self._given.collected.pop(PRINT_STREAM, ()):
            lines: list[str] = loads_records(payload)
            write_text(sys.stdout, "\n".join(lines) + "\n")

    def _note(self, vertex_id: VertexId, records: Sequence[Any]) -> Sequence[batch.BatchEffect]:
        """Take the records that a finished stage has for the driver. No effect follows."""
        for one in records:
            if isinstance(one, Report):
                self._given.reports[vertex_id, one.subtask] = one
                attempt_id = self._master.attempt_of(vertex_id, one.subtask)
                self._observer.observe(
                    messages.TaskIoReported(((attempt_id, one.io),), monotonic_ms())
                )
                self._given.committables += [
                    messages.Committable(*pair) for pair in one.committables
                ]
                metrics = one.metrics_report()
                if metrics is not None:
                    self._observer.observe(metrics)
            else:
                stream, payload = one
                self._given.collected.setdefault(stream, []).append(payload)
        return ()

    def _drop_leftovers(self) -> None:
        """Remove what attempts have written: a job that did not finish commits nothing."""
        for committer in committers_of(self._job.coordinated).values():
            try:
                committer.abort(job_prefix_of(self.job_id))
            except Exception as error:  # The job's outcome does not change.
                log_kept_leftovers(self.job_id, error)

    # ------------------------------------------------------------------ a stage's thread

    def _run_stage(self, stage: Stage, ranges: Sequence[SubpartitionRange]) -> None:
        event: batch.BatchEvent
        try:
            result = self._runner.run(self.order_of(stage, ranges))
            records = list(driver_records(result.for_driver))
            self._feed(lambda: self._note(stage.vertex_id, records))
            event = batch.StageFinished(stage.vertex_id, result.bytes_by_partition)
        except StageError as error:
            event = batch.StageFailed(stage.vertex_id, error.failure)
        except Exception as error:
            # Any error must be reported: the master waits for the end of this stage.
            event = batch.StageFailed(stage.vertex_id, failure_of(error))
        self._on_event(event)

    def order_of(self, stage: Stage, ranges: Sequence[SubpartitionRange] = ()) -> StageOrder:
        """Return what a host needs to run the stage. `ranges`: see `Stage.reads`.

        Raises: what a source's enumerator raises.
        """
        orders = self._orders(stage)
        reads = stage.reads(ranges) if stage.inputs else ()
        for place in self._job.coordinated:
            source = place.coordinator
            if place.vertex_id != stage.vertex_id or not isinstance(source, Source):
                continue
            if isinstance(source, FrameSource):
                return StageOrder(stage, orders, reads, (), self._on_event, source.frame)
            splits = splits_of(source, place.name, place.parallelism)
            return StageOrder(stage, orders, reads, splits, self._on_event)
        return StageOrder(stage, orders, reads, (), self._on_event)

    def _orders(self, stage: Stage) -> Orders:
        graph, vertex = self._job.graph, stage.vertex
        assert vertex.chain_blob is not None
        parameters = self._job.program.job_parameters
        return Orders(
            chain=graph.blobs[vertex.chain_blob],
            vertex_name=vertex.name,
            job_name=graph.name,
            job_id=graph.job_id,
            parallelism=vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
            outputs={one.data_set_id: one for one in stage.outputs},
            driver_partition=self._plan.driver_partition,
            wholes=stage.wholes(graph),
            settings=self._settings,
            job_parameters=tuple(parameters.items()),
            vertex_id=vertex.vertex_id,
        )


def _start(name: str, run: Callable[[], None]) -> None:
    threading.Thread(target=run, name=f"penstock-{name}", daemon=True).start()
