"""DataFrames that a streaming job reads: whether it reads any, and how a takeover replaces them."""

from __future__ import annotations

from penstock.engine.hosting.jobmanager.ha.packed_job import SubmittedJob
from penstock.engine.hosting.spark.dataframes.source import FrameSource


def reads_frames(job: SubmittedJob) -> bool:
    """Whether Spark computes DataFrames while the job's tasks run."""
    return any(isinstance(place.coordinator, FrameSource) for place in job.coordinated)


def lend_frames(job: SubmittedJob, own: SubmittedJob) -> None:
    """Give this program's DataFrames to the sources of a job taken over from another driver, which
    come without theirs.
    """
    sources = {place.uid: place.coordinator for place in own.coordinated}
    for place in job.coordinated:
        mine = sources.get(place.uid)
        if isinstance(place.coordinator, FrameSource) and isinstance(mine, FrameSource):
            place.coordinator.frame = mine.frame
