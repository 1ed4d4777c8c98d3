"""The jobs that were submitted to a session: opened, started, watched, and cleaned up, as the Dispatcher decides.

Each job has a thread of its own, which starts it and then waits for its end. Source: Flink Dispatcher, JobManagerRunner.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, cast

from penstock.engine.hosting.jobmanager.ha.election import Claim, Election, Standby
from penstock.engine.hosting.jobmanager.ha.guard import JobGuard
from penstock.engine.hosting.jobmanager.ha.packed_job import SubmittedJob
from penstock.engine.hosting.jobmanager.ha.store import Ended
from penstock.engine.hosting.jobmanager.handle import JobHandle
from penstock.engine.hosting.os.clock import monotonic_ms
from penstock.engine.hosting.os.session_jobs import SESSION_JOBS, SessionJob
from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.hosting.program.host import reads_frames
from penstock.engine.hosting.spark.batch.job import BatchJob
from penstock.engine.machines import dispatcher
from penstock.engine.machines.dispatcher import (
    Cancelled,
    DispatchedJob,
    Dispatcher,
    DispatcherSettings,
    Duplicate,
    Effect,
)
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.ids import JobId, VertexId
from penstock.engine.model.options.rest import ClientOptions
from penstock.engine.model.program import JobControl
from penstock.engine.model.states import JobStatus
from penstock.engine.model.texts.error_text import traceback_of
from penstock.ops.remote.rows import Piece
from penstock.ops.remote.session_client import Submission, opened
from penstock.ops.session.modules import ModuleSpaces

# ---------------------------------------------------------------------- collected rows
# Rows of jobs, piece by piece, for the clients that submitted them. A piece is kept until its
# reader asks for the next one.
#
# Nothing is unpickled here. A job whose rows nobody reads waits, as one waits whose program does
# not take them.


_ENDED_KEPT: Final = 8
"""Jobs that have ended, and whose rows may not all be read yet."""


class Giving(Protocol):
    """A job that gives rows without waiting: a streaming or a BATCH one."""

    def take_rows(self, stream: str) -> tuple[bytes | None, bool]:
        """Return the next pickled rows if there are any, and whether none come any more."""

    def status(self) -> JobStatus: ...
    def failure_text(self) -> str | None: ...


@dataclass(slots=True)
class _Rows:
    """The collected rows of one job. `streams`: the last piece of each."""

    job: Giving
    streams: dict[str, Piece] = field(default_factory=dict)


class CollectedRows:
    """The collected rows of all jobs of a session. Any thread."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[JobId, _Rows] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, job_id: JobId, control: JobControl) -> None:
        """The job runs. Rows of jobs that ended long ago are forgotten."""
        with self._lock:
            # Both kinds of jobs of a session give rows.
            self._jobs[job_id] = _Rows(cast("Giving", control))
            ended = [one for one, rows in self._jobs.items() if rows.job.status().is_terminal]
            for one in ended[:-_ENDED_KEPT]:
                del self._jobs[one]

    def after(self, job_id: JobId, stream: str, number: int) -> Piece | None:
        """Return the piece after this one; None: there is none yet.

        Raises ExternalError: rows of this job are not there, or the piece before was not the last that was given.
        """
        with self._lock:
            rows = self._jobs.get(job_id)
            if rows is None:
                raise ExternalError(
                    f"the rows of job {job_id} are not here: this cluster did not start it for a "
                    "client that reads rows, or it was started again. Submit the job again."
                )
            last = rows.streams.get(stream, Piece(0))
            if number == last.number - 1:
                return last  # Its reader has not got it.
            if number != last.number:
                raise ExternalError(f"piece {number + 1} was asked for after {last.number}")
            payload, is_over = rows.job.take_rows(stream)
            if payload is None and not is_over:
                return None
            failure = rows.job.failure_text() if payload is None else None
            rows.streams[stream] = found = Piece(number + 1, payload, failure)
            return found


# ---------------------------------------------------------------------- submissions


_LOG: Final = logging.getLogger(__name__)
_TICK_S: Final = 0.5
_SUSPENDED: Final = "the session ends; another one continues the job"


def start_submitted(
    executor: ClusterExecutor,
    job: SubmittedJob,
    speakers: AbstractSet[VertexId] | None,
    claim: Claim | None,
    *,
    reads_rows: bool = False,
) -> JobControl:
    """Start the job. `claim`: the right to run it, with high availability.

    `reads_rows`: its client takes collected rows; else they are dropped. `speakers`: the job is a BATCH job, of which these vertices have something for the driver.
    Raises what starting a program's job does.
    """
    settings = executor.settings_of(job.program)
    control: JobControl
    if speakers is not None:
        control = executor.batch.start(speakers, job, settings)
    elif claim is not None:
        control = executor.run_claimed(claim, settings, has_program=reads_rows)
    else:
        control = executor.streaming.start(job, settings, JobGuard(), has_program=reads_rows)
    entry = SessionJob(control, job.graph.name, time.time(), is_submitted=True)
    if isinstance(control, JobHandle):
        entry = replace(entry, slots=control.slots_held)
    SESSION_JOBS.add(entry)
    return control


@dataclass(slots=True, eq=False)
class _Held:
    """What is needed to start a job, and what controls it. `started`: answered once it runs, or cannot."""

    job: SubmittedJob
    speakers: frozenset[VertexId] | None = None
    reads_rows: bool = False
    claim: Claim | None = None
    control: JobControl | None = None
    started: Future[None] = field(default_factory=Future)


class Submissions:
    """All jobs of a session. Any thread. `election` None: without high availability. `on_fatal`: gets the reason."""

    def __init__(
        self,
        executor: ClusterExecutor,
        modules: ModuleSpaces,
        settings: DispatcherSettings,
        election: Election | None,
        on_fatal: Callable[[str], None],
        *,
        ships_modules: bool = True,
    ) -> None:
        self._executor = executor
        self._modules = modules
        self._election = election
        self._on_fatal = on_fatal
        self._ships_modules = ships_modules
        self._machine = Dispatcher(settings, is_kept=election is not None)
        self._held: dict[JobId, _Held] = {}
        self.rows = CollectedRows()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._ticker = threading.Thread(target=self._tick, name="penstock-dispatcher", daemon=True)

    def start(self) -> None:
        self._ticker.start()

    def jobs(self) -> list[dict[str, Any]]:
        """Return id, name, phase and last status of each job, in the order of submission."""
        with self._lock:
            return [_in_list(job) for job in self._machine.jobs]

    # ------------------------------------------------------------------ jobs come

    def submit(self, data: bytes) -> JobId:
        """Open the bytes of an authenticated client, and start the job. Waits until it has a JobManager.

        Raises whatever is wrong: Duplicate, NotAccepted, an error of unpickling, or why the job cannot be started.
        """
        submission = opened(data, self._open_modules)
        job_id = submission.job.graph.job_id
        try:
            self._check(submission)
            timeout_ms = _client_timeout_ms(submission)
            job = replace(submission.job, client_timeout_ms=timeout_ms)
            held = _Held(job, submission.speakers, submission.reads_rows)
            with self._lock:
                submitted = dispatcher.JobSubmitted(job_id, job.graph.name, timeout_ms)
                effects = self._effects_of(submitted)
                self._held[job_id] = held
        except Duplicate:
            raise  # Its modules are those of the job that is known.
        except BaseException:
            self._modules.close(job_id)
            raise
        self._carry_out(effects)
        held.started.result()
        return job_id

    def recover(self, claim: Claim) -> None:
        """Take over a job of a former session. Returns at once."""
        job, is_dirty = claim.job, claim.result is not None
        job_id, name = job.graph.job_id, job.graph.name
        self._held[job_id] = _Held(job, claim=claim)
        self._step(dispatcher.JobRecovered(job_id, name, is_dirty, job.client_timeout_ms))

    def _open_modules(
        self, job_id: JobId, archive: bytes, pickled: bytes
    ) -> contextlib.AbstractContextManager[None]:
        """Raises Duplicate before anything of the job's own is unpickled."""
        with self._lock:
            known = self._machine.known(job_id)
            if known is not None and known.phase is not dispatcher.Phase.ENDED:
                self._effects_of(dispatcher.JobSubmitted(job_id, known.name))  # Raises.
        return self._modules.open(job_id, archive, pickled)

    def _start(self, held: _Held) -> JobControl:
        job, claim = held.job, held.claim
        if not self._ships_modules:
            # Tasks of this process find them where the session has put them.
            job = replace(job, modules=b"")
            claim = None if claim is None else replace(claim, job=job)
        return start_submitted(
            self._executor, job, held.speakers, claim, reads_rows=held.reads_rows
        )

    def _check(self, submission: Submission) -> None:
        """Raises ConfigurationError: the job needs its client."""
        if reads_frames(submission.job):
            raise ConfigurationError(
                "the job reads a Spark DataFrame, which belongs to the client's Spark. Write it to "
                "files and read these, or run the program by its own driver: `penstock run` "
                "without -m."
            )

    # ------------------------------------------------------------------ clients

    def rows_after(self, job_id: JobId, stream: str, number: int) -> Piece | None:
        """See `CollectedRows.after`. The client of the job lives."""
        self.client_lives(job_id)
        found = self.rows.after(job_id, stream, number)
        if found is not None and found.payload is None:
            self._effects_of(dispatcher.ClientServed(job_id))
        return found

    def client_lives(self, job_id: JobId, for_ms: int | None = None) -> bool:
        """Return whether the job is known, and has not ended. `for_ms`: until when the client may be silent; None: as long as always."""
        with self._lock:
            self._effects_of(dispatcher.ClientLives(job_id, for_ms))
            return self._machine.is_alive(job_id)

    # ------------------------------------------------------------------ jobs go

    def cancel(self, job_id: str) -> Cancelled:
        wanted = JobId(job_id)
        with self._lock:
            effects = self._effects_of(dispatcher.CancelJob(wanted))
            found = self._machine.cancelled(wanted)
        self._carry_out(effects)
        return found

    def close(self, timeout_s: float) -> bool:
        """End all jobs, and wait until nothing is left of them. Returns: whether that is so."""
        self._step(dispatcher.CloseSession())
        with self._changed:
            return self._changed.wait_for(lambda: self._machine.is_done, timeout_s)

    # ------------------------------------------------------------------ what the Dispatcher wants

    def _effects_of(self, event: dispatcher.DispatcherEvent) -> Sequence[Effect]:
        with self._lock:
            return self._machine.step(event, monotonic_ms())

    def _step(self, event: dispatcher.DispatcherEvent) -> None:
        """Pass an event to the Dispatcher, and carry out what it wants."""
        self._carry_out(self._effects_of(event))

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, dispatcher.EndSession):
                self._on_fatal(effect.cause)
                continue
            held = self._held[effect.job_id]
            if isinstance(effect, dispatcher.Initialise):
                self._on_thread(effect.job_id, self._run, held)
            elif isinstance(effect, dispatcher.CleanUp):
                self._on_thread(effect.job_id, self._clean_up, held, effect.is_global)
            elif held.control is not None:
                if isinstance(effect, dispatcher.Cancel) and effect.cause:
                    _LOG.warning("job=%s CANCELLED cause=%s", effect.job_id, effect.cause)
                _stop(held.control, effect)
        with self._changed:
            self._changed.notify_all()

    def _on_thread(self, job_id: JobId, work: Callable[..., None], *arguments: Any) -> None:
        name, given = f"penstock-job-{job_id[:6]}", (job_id, *arguments)
        threading.Thread(target=work, args=given, name=name, daemon=True).start()

    def _run(self, job_id: JobId, held: _Held) -> None:
        """Start a job, and wait for its end."""
        try:
            self._claim(job_id, held)
            control = self._start(held)
            if held.reads_rows:
                self.rows.add(job_id, control)
        except BaseException as error:
            effects = self._effects_of(dispatcher.JobStartFailed(job_id, traceback_of(error)))
            held.started.set_exception(error)
            self._carry_out(effects)
            return
        held.control = control
        effects = self._effects_of(dispatcher.JobStarted(job_id))
        held.started.set_result(None)
        self._carry_out(effects)
        _await_end(control)
        self._step(dispatcher.JobEnded(job_id, control.status()))

    def _claim(self, job_id: JobId, held: _Held) -> None:
        """Store the job before it runs. Raises Duplicate: a driver of this cluster-id runs it."""
        if self._election is None or held.claim is not None or held.speakers is not None:
            return
        standby = Standby()
        found = self._election.try_claim(job_id, held.job, standby)
        if not isinstance(found, Claim):
            owner = "another driver" if standby.lease is None else f"driver {standby.lease.owner}"
            raise Duplicate(
                f"job {job_id} is run by {owner} of the same high-availability.cluster-id. Wait "
                "for its end, or submit with another pipeline.fixed-job-id."
            )
        held.claim = found

    def _clean_up(self, job_id: JobId, held: _Held, is_global: bool) -> None:
        try:
            self._remove_rest(job_id, held, is_global=is_global)
        except Exception as error:
            with self._lock:
                now_ms = monotonic_ms()
                self._machine.step(dispatcher.CleanUpFailed(job_id), now_ms)
                known = self._machine.known(job_id)
                at_ms = None if known is None else known.retry_at_ms
            again = "given up" if at_ms is None else f"again in {at_ms - now_ms} ms"
            _LOG.warning("job=%s clean-up FAILED, %s", job_id, again, exc_info=error)
        else:
            with self._lock:
                self._effects_of(dispatcher.JobCleaned(job_id))
                if self._held.get(job_id) is held:
                    del self._held[job_id]
        with self._changed:
            self._changed.notify_all()

    def _remove_rest(self, job_id: JobId, held: _Held, *, is_global: bool) -> None:
        """Remove what is left of a job. Raises OSError: the store could not be reached."""
        if not held.started.done():
            refusal = dispatcher.NotAccepted(f"job {job_id} was ended before it began")
            held.started.set_exception(refusal)
        claim = held.claim
        if claim is not None and claim.result is not None and held.control is None:
            held.control = self._start(held)
            self._effects_of(dispatcher.EndCarriedOut(job_id, held.control.status()))
        if is_global and claim is not None:
            self._remove_entry(job_id, claim, held)
        self._modules.close(job_id)

    def _remove_entry(self, job_id: JobId, claim: Claim, held: _Held) -> None:
        """Remove the entry if the job's own JobManager could not. Raises OSError, LeaseTaken."""
        assert self._election is not None
        store, entry = self._election.store, claim.keeper.entry
        if store.find(entry.key) != entry:
            return
        if held.control is None:
            store.drop(entry)
            return
        outcome = held.control.wait(0)
        status, failure = str(outcome.status), outcome.failure
        store.remove(entry, Ended(entry.token, job_id, status, outcome.net_runtime_ms, failure))

    def _tick(self) -> None:
        pause = threading.Event()
        while not pause.wait(_TICK_S):
            self._step(dispatcher.Tick())


def _client_timeout_ms(submission: Submission) -> int | None:
    """How long its client may be silent; None: the job outlives it."""
    if not submission.reads_rows:
        return None
    settings = Settings(submission.job.program.configuration)
    return settings.get(ClientOptions.HEARTBEAT_TIMEOUT)


def _in_list(job: DispatchedJob) -> dict[str, Any]:
    status = None if job.status is None else str(job.status)
    return {"id": job.job_id, "name": job.name, "phase": str(job.phase), "status": status}


def _stop(control: JobControl, effect: dispatcher.Cancel | dispatcher.Suspend) -> None:
    """A job that cannot be suspended, such as one in runtime mode BATCH, is cancelled."""
    if isinstance(effect, dispatcher.Suspend) and isinstance(control, JobHandle):
        control.suspend(_SUSPENDED)
    else:
        control.cancel()


def _await_end(control: JobControl) -> None:
    """Wait without a reader of the job's error, so that the console shows it."""
    if isinstance(control, JobHandle):
        control.manager.wait()
    elif isinstance(control, BatchJob):
        control.ended.wait()
