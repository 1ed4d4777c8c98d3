"""Requests for what happened to a job, in order. Flink has no such path."""

from __future__ import annotations

from penstock.hosting.jobmanager.handle import JobHandle
from penstock.hosting.rest.answers import Answer, Asked, RestError
from penstock.hosting.rest.requests.handlers import Driver
from penstock.observation.jobs.snapshots import JobSnapshot, VertexSnapshot
from penstock.observation.views.story import story


def job_story(driver: Driver, asked: Asked) -> Answer:
    """`/jobs/:jobid/story`. `vertexid`, `subtaskindex`: whose attempts are told, too. `machine`: how many lines of the job's machine."""
    job = driver.job(asked)
    vertex, subtask = _whose(job, asked)
    count = asked.query_number("machine", 0)
    control = driver.observatory.control(job.job_id) if count > 0 else None
    lines = control.story(_part(vertex, subtask)) if isinstance(control, JobHandle) else []
    return Answer(story(job, vertex, subtask, lines[-count:] if count > 0 else []))


def _whose(job: JobSnapshot, asked: Asked) -> tuple[VertexSnapshot | None, int | None]:
    """Raises RestError: there is no such vertex or subtask."""
    vertex_id = asked.query.get("vertexid")
    subtask = asked.query_number("subtaskindex", -1)
    if not vertex_id:
        if subtask >= 0:
            raise RestError(400, "subtaskindex needs vertexid, which is missing.")
        return None, None
    vertex = job.vertex(vertex_id.lower())
    if vertex is None:
        raise RestError(404, f"JobVertex {vertex_id} not found")
    if subtask >= len(vertex.attempts):
        raise RestError(404, f"Invalid subtask index for vertex {vertex_id}")
    return vertex, None if subtask < 0 else subtask


def _part(vertex: VertexSnapshot | None, subtask: int | None) -> str:
    """What the lines of the machine have that are about these attempts, which it names so: `1f5c0a9b[0]#2`."""
    if vertex is None:
        return ""
    begin = f"{vertex.facts.vertex_id[:8]}["
    return begin if subtask is None else f"{begin}{subtask}]"
