"""A job of many vertices and subtasks, all of which run and report: what the pages of a large job are fed with."""

from penstock.engine.hosting.os.clock import wall_ms
from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, JobId, VertexId
from penstock.engine.model.messages import ExecutionStateChanged, TaskIoReported
from penstock.engine.model.states import ExecutionState
from penstock.ops.jobs.snapshots import CheckpointFacts, InputFacts, JobFacts, VertexFacts
from tests.tools.observation.job_records import io_of

LIVES = [
    ExecutionState(one) for one in ("CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING")
]
WIDTH = 20
"""So many vertices stand behind each other's sources: the graph is as wide as it is deep."""


def wide_facts(vertices, subtasks):
    """A job whose vertices have as many subtasks as make up that number together."""
    each = max(1, subtasks // vertices)
    ids = [VertexId(f"{number:032x}") for number in range(1, vertices + 1)]
    known = tuple(
        VertexFacts(
            one,
            f"{'Source: ' if number < WIDTH else ''}vertex {number}",
            each,
            128,
            "default",
            (),
            ()
            if number < WIDTH
            else (InputFacts(ids[number - WIDTH], "HASH", "pipelined_bounded", "data set"),),
        )
        for number, one in enumerate(ids)
    )
    return JobFacts(
        JobId("b" * 32),
        "wide job",
        JobType.STREAMING,
        known,
        wall_ms(),
        CheckpointFacts(CheckpointSettings(interval_ms=1000)),
    )


def attempts(known):
    return [
        AttemptId(ExecutionVertexId(vertex.vertex_id, subtask), 0)
        for vertex in known.vertices
        for subtask in range(vertex.parallelism)
    ]


def runs(job):
    """All subtasks of a told job run."""
    job.status("RUNNING")
    for former, state in zip(LIVES, LIVES[1:], strict=False):
        for one in attempts(job.facts):
            job.tell(ExecutionStateChanged(one, former, state, 0))
    return job


def reports(job, turn):
    """All subtasks report once. `turn`: counts the reports."""
    told = tuple(
        (
            one,
            io_of(
                records_in=1000 * turn,
                records_out=1000 * turn,
                busy_ms_per_s=number % 1000,
                idle_ms_per_s=1000 - number % 1000,
                watermark_ms=wall_ms() - number,
            ),
        )
        for number, one in enumerate(attempts(job.facts))
    )
    return job.tell(TaskIoReported(told, 0))
