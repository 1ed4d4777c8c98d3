"""Runs a program on a host: `engine.model.program.JobExecutor`.

Chooses between STREAMING, with or without high availability, and BATCH. Source: Flink PipelineExecutor, ClusterEntrypoint.
"""

from __future__ import annotations

import atexit
import builtins
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from penstock.engine.hosting.jobmanager.ha.election import Claim, Election, key_of
from penstock.engine.hosting.jobmanager.ha.guard import JobGuard
from penstock.engine.hosting.jobmanager.ha.recovery import (
    drop_leftovers,
    ended_elsewhere,
    finish_recorded,
    recovery_text,
)
from penstock.engine.hosting.jobmanager.ha.settings import ha_settings_of
from penstock.engine.hosting.jobmanager.ha.store import Ended
from penstock.engine.hosting.jobmanager.handle import JobHandle
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.hosting.os.file_systems import joined, local_path
from penstock.engine.hosting.os.private_files import NotPrivate, make_folder
from penstock.engine.hosting.os.session_jobs import SESSION_JOBS, Cell, SessionJob
from penstock.engine.hosting.program.batch_jobs import BatchJobs
from penstock.engine.hosting.program.checkpoint_setup import check_clients
from penstock.engine.hosting.program.host import Host, lend_frames, slots_by_size
from penstock.engine.hosting.program.settings import HOST_DEFAULTS, refuse_late_target
from penstock.engine.hosting.program.streaming_jobs import StreamingJobs
from penstock.engine.hosting.program.submitted_jobs import fixed_job_id, submitted_job
from penstock.engine.hosting.reporting.say import say
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.stream_graph import StreamGraph
from penstock.engine.model.options.checkpoints import CheckpointOptions
from penstock.engine.model.program import JobControl, ProgramSettings
from penstock.engine.model.slot_size import UNSIZED, SlotSize

# ---------------------------------------------------------------------- cells
# Which notebook cell is running. Knows IPython only by what it puts into every cell's reach, and
# imports nothing of it.


def running_cell() -> Cell | None:
    """The cell whose code calls this; None: no notebook, or another thread than the main one, such as a timer's: what runs there need
    not belong to the cell that runs now.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    get_shell = getattr(builtins, "get_ipython", None)
    shell: Any = get_shell() if get_shell is not None else None
    if shell is None:
        return None
    place = _place_in(getattr(shell, "user_ns", None))
    if place is None:
        return None
    # Front ends name the cell. Without that its code has a file name of its own, which stays the same until it is edited. A cell with
    # the same code, such as `%run $script`, has the same file name, so the script's is needed, too.
    header = getattr(shell, "parent_header", None) or {}
    name = (header.get("metadata") or {}).get("cellId")
    return Cell(str(name or place), getattr(shell, "execution_count", None))


def _place_in(namespace: object) -> str | None:
    """The file name of the outermost code that runs in the notebook's namespace, and those of the scripts that it runs."""
    place: str | None = None
    scripts: list[str] = []
    current: Any = sys._getframe(1)
    while current is not None:
        code = current.f_code
        if current.f_globals is namespace:
            place = "\n".join([code.co_filename, *reversed(scripts)])
        if code.co_name == "<module>":
            scripts.append(code.co_filename)
        current = current.f_back
    return place


# ---------------------------------------------------------------------- executor


_PREFIX: Final = "penstock-results-"


def results_folder(configured: str | None, *, shares_files: bool) -> str:
    """Make a folder for results that this process reads back. It is removed when this process ends.

    It is this user's alone. Raises: ConfigurationError: driver and executors share no directory,
    other users may write to it, or it cannot be made.
    """
    name = f"{_PREFIX}{secrets.token_hex(8)}"
    folder = None if configured is None else local_path(configured)
    if folder is None and not shares_files:
        raise ConfigurationError(
            "to_spark of a streaming job and cache() keep results in files, but this driver "
            "and the executors share no directory: execution.checkpointing.dir is "
            f"{configured!r}. Set it to a mounted directory. In runtime mode BATCH, to_spark "
            "needs no directory."
        )
    own = f"{tempfile.gettempdir()}/{name}" if folder is None else joined(folder, name)
    try:
        make_folder(own)
    except (OSError, NotPrivate) as error:
        raise ConfigurationError(
            f"results cannot be kept in {own!r}: {error}. The place is set by "
            "execution.checkpointing.dir; without it, by TMPDIR."
        ) from error
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own


def _none() -> int:
    """The slots of a BATCH job, which runs in Spark's stages."""
    return 0


class ClusterExecutor:
    """`engine.model.program.JobExecutor` on a host."""

    def __init__(self, host: Host, observer: JobObserver | None = None) -> None:
        self._host = host
        self.streaming = StreamingJobs(host, observer)
        self.batch = BatchJobs(host, observer)

    def options_of(self, program: ProgramSettings) -> Mapping[str, str]:
        """See `engine.model.program.JobExecutor`."""
        return self.settings_of(program).as_text()

    def submit(self, graph: StreamGraph, program: ProgramSettings) -> JobControl:
        """Run the job. Raises GraphError, ConfigurationError, NoResourceAvailable before anything
        starts.

        With high availability it waits while another driver runs this job, and takes the job over
        when that driver dies.
        """
        cell = running_cell()
        SESSION_JOBS.let_go_of_former_run(cell, say)
        started_s = time.time()
        control = self._submit(graph, program)
        slots = control.slots_held if isinstance(control, JobHandle) else _none
        SESSION_JOBS.add(SessionJob(control, graph.job_name, started_s, slots, cell))
        return control

    def _submit(self, graph: StreamGraph, program: ProgramSettings) -> JobControl:
        settings = self.settings_of(program)
        check_clients(settings)  # Before Spark starts.
        graph, job = submitted_job(self._host, graph, program, settings)
        if graph.is_batch:
            return self.batch.start_program(graph, job, settings)
        ha = ha_settings_of(settings)
        if ha is None:
            return self.streaming.start(job, settings, JobGuard())
        election, key = Election(ha, say), key_of(job.graph, fixed_job_id(settings))
        standby = election.watch(key)  # The lease of a lost driver runs out while Spark starts.
        self.streaming.provider(job, settings)  # Announce only a job that this driver can run.
        with self.streaming.standing_by(settings):
            found = election.claim(key, job, standby)
        if isinstance(found, Ended):
            return ended_elsewhere(found)
        lend_frames(found.job, job)
        return self.run_claimed(found, settings)

    def recover(self, configuration: Mapping[str, str]) -> list[tuple[str, JobControl]]:
        """Take over all jobs of a cluster-id whose drivers are gone. Returns: their names, and the
        jobs that now run.

        Raises ConfigurationError, and the error of a job that cannot be started here.
        """
        settings = self.settings_of(ProgramSettings(configuration))
        ha = ha_settings_of(settings)
        if ha is None:
            raise ConfigurationError(
                "there is nothing to recover, because high-availability.type is NONE. Set it to "
                "the type with which the jobs were run."
            )
        election = Election(ha, say)
        claims = [election.claim_abandoned(key) for key in election.job_keys()]
        found = [claim for claim in claims if claim is not None]
        needed: Counter[SlotSize] = Counter()
        for claim in found:
            if claim.result is None:
                needed.update(slots_by_size(claim.job.graph))
        if needed:
            # Starts an embedded Spark that has room for all of them.
            self._host.provider(settings, needed)
        return [
            (claim.job.graph.name, self.run_claimed(claim, settings, has_program=False))
            for claim in found
        ]

    def run_claimed(
        self, claim: Claim, settings: Settings, *, has_program: bool = True
    ) -> JobControl:
        """Run the job of a claim; if its end was recorded already, only carry that out again."""
        try:
            if claim.result is not None:
                say(recovery_text(claim))
                return finish_recorded(claim, claim.result)
            if claim.is_recovered:
                say(recovery_text(claim))
                settings = self.settings_of(claim.job.program)
                if not claim.keeper.former_checkpoints:
                    drop_leftovers(claim.job)
            return self.streaming.start(claim.job, settings, claim.keeper, has_program=has_program)
        except BaseException:  # An interrupt, too, must not leave the job claimed.
            claim.keeper.abandon(is_wanted=claim.is_recovered)
            raise

    def lazy_frame(
        self, graph: StreamGraph, program: ProgramSettings, type_info: object
    ) -> Any | None:
        """See `engine.model.program.JobExecutor`."""
        if not graph.is_batch:
            return None
        settings = self.settings_of(program)
        graph, job = submitted_job(self._host, graph, program, settings, knows_volumes=False)
        return self.batch.lazy_frame(graph, job, settings, type_info)

    def results_folder(self, program: ProgramSettings) -> str:
        """See `engine.model.program.JobExecutor`."""
        settings = self.settings_of(program)
        provider = self._host.provider(settings, {UNSIZED: 1})
        directory = settings.get(CheckpointOptions.DIR)
        return results_folder(directory, shares_files=provider.shares_files)

    def frame_of_files(self, folder: str, program: ProgramSettings, type_info: Any) -> Any:
        """See `engine.model.program.JobExecutor`."""
        return self._host.frame_of_files(self.settings_of(program), folder, type_info)

    def settings_of(self, program: ProgramSettings) -> Settings:
        """Return the settings of a program on this host."""
        given = self._host.command_line()
        spark = self._host.spark_configuration(Settings(program.configuration, command_line=given))
        settings = Settings(
            program.configuration, command_line=given, spark=spark, defaults=HOST_DEFAULTS
        )
        refuse_late_target(settings)
        return settings
