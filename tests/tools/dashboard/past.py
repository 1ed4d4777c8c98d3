"""What a driver knows of a job's past: rows of its history, as if somebody had looked each second."""

from penstock.engine.model.ids import AttemptId, ExecutionVertexId
from penstock.engine.model.messages import TaskIoReported
from penstock.engine.model.states import ExecutionState, JobStatus
from tests.tools.observation.job_records import ToldJob, io_of


def remember(driver, job, figures, seconds=120):
    """`figures`: (vertex id, subtask, the second since the begin) to what a subtask reports then; None: it is silent.

    Returns the time of the newest row. The present of the job is told apart.
    """
    past = ToldJob()
    past.facts = job.facts
    past.record = type(past.record)(job.facts)
    past.now = job.now - seconds * 1000
    past.status(JobStatus.RUNNING)
    for vertex in job.facts.vertices:
        past.runs(vertices=(vertex.vertex_id,), parallelism=vertex.parallelism)
    for second in range(seconds):
        told = [
            (AttemptId(ExecutionVertexId(vertex.vertex_id, subtask), 0), io_of(**known))
            for vertex in job.facts.vertices
            for subtask in range(vertex.parallelism)
            if (known := figures(vertex.vertex_id, subtask, second)) is not None
        ]
        if told:
            past.tell(TaskIoReported(tuple(told), 0))
        with driver.job_registry.histories() as histories:
            histories.look(past.now_it_is(after_ms=1000))
    assert ExecutionState.RUNNING in {one.state for one in past.now_it_is().vertices[0].attempts}
    return past.now
