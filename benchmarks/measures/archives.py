"""How long the archive of a job takes to be written, and how long a history server takes to read it, without Spark."""

import os
import tempfile
import time

from benchmarks.figures import Figure
from penstock.ops.history.library import Library, write_archive
from penstock.ops.jobs.views.archive import archive_of
from penstock.ops.jobs.views.cluster import environment
from penstock.ops.registry.job_registry import JobRegistry
from tests.tools.dashboard.told_driver import ToldByEvents
from tests.tools.dashboard.wide_job import attempts, reports, runs, wide_facts

VERTICES, SUBTASKS, CHECKPOINTS = 201, 10_000, 10
MB = 1e6

ABOUT = """\
A job whose events are told by hand: all its subtasks report, take part in ten checkpoints, and
finish. *written*: by the thread that archives jobs, which gives way to the JobManager. Floor: the
bytes of the same archive, written to the same disk at once. *listed*, *asked for*: by a history
server that has not read the archive before."""


def measure(_events: int | None, runs_wanted: int) -> list[Figure]:
    ones = [_archived() for _ in range(runs_wanted)]
    settings = {"vertices": VERTICES, "subtasks": SUBTASKS, "checkpoints": CHECKPOINTS}

    def figure(name: str, key: str, unit: str, floor: str = "") -> Figure:
        floors = [one[floor] for one in ones] if floor else ()
        return Figure(name, [one[key] for one in ones], unit, floors, settings)

    return [
        figure("archive of a job, written", "written", "s", "floor"),
        figure("archive of a job, size", "size", "MB"),
        figure("archive of a job, listed", "listed", "s"),
        figure("archive of a job, asked for", "asked for", "s"),
    ]


def _archived() -> dict[str, float]:
    registry = JobRegistry()
    job_id = _told(registry)
    job = registry.job(job_id)
    assert job is not None
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        place = write_archive(folder, job_id, archive_of(job, environment(), registry.figures))
        found["written"] = time.perf_counter() - began
        found["size"] = os.path.getsize(place) / MB
        library = Library([folder])
        began = time.perf_counter()
        library.refresh()
        found["listed"] = time.perf_counter() - began
        began = time.perf_counter()
        assert library.answer(f"/jobs/{job_id}") is not None
        found["asked for"] = time.perf_counter() - began
        with open(place, "rb") as file:
            data = file.read()
        began = time.perf_counter()
        with open(f"{folder}/floor", "wb") as file:
            file.write(data)
            os.fsync(file.fileno())
        found["floor"] = time.perf_counter() - began
    return found


def _told(registry: JobRegistry) -> str:
    job = ToldByEvents(registry, wide_facts(VERTICES, SUBTASKS))
    runs(job).is_seen()
    reports(job, 1).is_seen()
    every = attempts(job.facts)
    for number in range(1, CHECKPOINTS + 1):
        job.triggers(number)
        for one in every:
            job.acknowledges(number, one, 1)
        job.ends(number).is_seen()
    for one in every:
        job.moves(one, "FINISHED")
    job.status("FINISHED").is_seen()
    return job.facts.job_id
