"""Starts jobs whose program runs elsewhere, or has run."""

from __future__ import annotations

import time
from collections.abc import Set as AbstractSet

from penstock.hosting.ha.election import Claim
from penstock.hosting.ha.guard import JobGuard
from penstock.hosting.ha.packed_job import SubmittedJob
from penstock.hosting.jobmanager.handle import JobHandle
from penstock.hosting.program.executor import ClusterExecutor
from penstock.hosting.session_jobs import SESSION_JOBS, SessionJob
from penstock.model.ids import VertexId
from penstock.model.program import JobControl


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
    entry = SessionJob(control, job.graph.name, time.time())
    if isinstance(control, JobHandle):
        entry = SessionJob(control, job.graph.name, entry.started_s, control.slots_held)
    SESSION_JOBS.add(entry)
    return control
