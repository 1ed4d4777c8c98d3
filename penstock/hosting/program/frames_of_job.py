"""DataFrames that a job reads while it runs: whether there are some, and whose stand in after a takeover."""

from __future__ import annotations

from penstock.hosting.dataframes.source import FrameSource
from penstock.hosting.ha.election import SubmittedJob


def reads_frames(job: SubmittedJob) -> bool:
    """Whether Spark computes DataFrames beside the job's tasks."""
    return any(isinstance(place.coordinator, FrameSource) for place in job.coordinated)


def lend_frames(job: SubmittedJob, own: SubmittedJob) -> None:
    """A job that was another driver's has its sources without their DataFrames: this program's stand in for them."""
    sources = {place.uid: place.coordinator for place in own.coordinated}
    for place in job.coordinated:
        mine = sources.get(place.uid)
        if isinstance(place.coordinator, FrameSource) and isinstance(mine, FrameSource):
            place.coordinator.frame = mine.frame
