"""What keeps a job from running at all: it lacks slots, it starts for long, or it restarts again and again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.engine.model.ids import VertexId
from penstock.engine.model.states import ExecutionState
from penstock.engine.model.texts.bounded_text import shortened
from penstock.engine.model.texts.error_text import headline_of
from penstock.engine.model.texts.redaction import without_credentials
from penstock.ops.jobs.diagnosis.words import at_start, lasting, since_text, subtask_of
from penstock.ops.jobs.failure_record import FailureSeen
from penstock.ops.jobs.snapshots import AttemptSnapshot, JobSnapshot, VertexSnapshot

_RECENT_MS: Final = 600_000
_AGAIN: Final = 3
"""With this many failures within ten minutes, a job restarts again and again."""
_OVER_MS, _OVER = 60_000, 3
"""Restarts are over if nothing failed for this time, and for this multiple of the usual time between failures."""
_MOST_OF_CAUSE: Final = 300
_STARTING: Final = frozenset({ExecutionState.DEPLOYING, ExecutionState.INITIALIZING})


@dataclass(frozen=True, slots=True)
class Waiting:
    """Subtasks that do not run yet. The named one is the first of them. `state`: what it waits in. `of`: all subtasks.

    `reason`: what the ResourceManager says of missing slots; empty: nothing yet.
    """

    vertex_id: VertexId
    name: str
    subtask: int
    state: ExecutionState
    count: int
    of: int
    since_ms: int
    reason: str = ""

    def sentence(self, now_ms: int) -> str:
        since = since_text(now_ms, self.since_ms)
        who = subtask_of(self.subtask, self.name)
        if self.state is not ExecutionState.SCHEDULED:
            return (
                f"The job starts: {self.of - self.count} of {self.of} subtasks run, and {who} is "
                f"{self.state}{since}."
            )
        why = f": {self.reason}" if self.reason else ""
        return (
            f"The job waits for slots{since}: {self.count} of {self.of} subtasks have none, the "
            f"first is {who}{why}."
        )


@dataclass(frozen=True, slots=True)
class Repeated:
    """What makes the job restart again and again. `vertex_id` None: no single vertex; then `name` is empty too.

    `subtask`: the one that fails; if those of a vertex fail in turn, the last one, and not `is_one_subtask`.
    """

    vertex_id: VertexId | None
    name: str
    subtask: int
    count: int
    since_ms: int
    cause: str
    is_one_subtask: bool = True

    def sentence(self, now_ms: int) -> str:
        who, last = "the job", ""
        if self.vertex_id is not None:
            who = subtask_of(self.subtask, self.name)
            if not self.is_one_subtask:
                who, last = f"'{self.name}'", f" in subtask {self.subtask}"
        span = lasting(now_ms - self.since_ms)
        return (
            f"{at_start(who)} has failed {self.count} times in {span}, so the job restarts again "
            f"and again; the last time{last} with {self.cause}."
        )


def waiting_of(job: JobSnapshot) -> Waiting | None:
    """Return the subtasks that wait for a slot, or else those that start. None: there are none."""
    everybody = [(vertex, one) for vertex in job.vertices for one in vertex.attempts]
    lacking = [one for one in everybody if one[1].state is ExecutionState.SCHEDULED]
    chosen = lacking or [one for one in everybody if one[1].state in _STARTING]
    if not chosen:
        return None
    vertex, attempt = chosen[0]
    missing = job.missing_slots
    reason = ""
    if lacking and missing is not None:
        reason = f"{missing.wanted} are wanted, {missing.available} are there; {missing.reason}"
    return Waiting(
        vertex.facts.vertex_id,
        vertex.facts.name,
        attempt.subtask,
        attempt.state,
        len(chosen),
        len(everybody),
        min(_since(one) for _, one in chosen),
        without_credentials(reason).rstrip("."),
    )


def _since(attempt: AttemptSnapshot) -> int:
    return attempt.since[-1][1]


def repeated_of(job: JobSnapshot) -> Repeated | None:
    """Return the subtask that fails most, if the job has failed again and again lately."""
    roots = [root for root, _ in job.failures if root.at_ms >= job.now_ms - _RECENT_MS]
    if len(roots) < _AGAIN:
        return None
    roots.sort(key=lambda one: one.at_ms)
    usual_ms = (roots[-1].at_ms - roots[0].at_ms) / (len(roots) - 1)
    if job.now_ms - roots[-1].at_ms > max(_OVER_MS, _OVER * usual_ms):
        return None
    own = _most(roots, _place) or _most(roots, _vertex_of)
    place = _place(own[-1]) if own else None
    own = own or roots
    vertex = None if place is None else job.vertex(place[0])
    return Repeated(
        None if vertex is None else vertex.facts.vertex_id,
        "" if vertex is None else vertex.facts.name,
        -1 if place is None else place[1],
        len(own),
        own[0].at_ms,
        _cause(own[-1]),
        len({_place(one) for one in own}) == 1,
    )


def _most(roots: Sequence[FailureSeen], key: Callable[[FailureSeen], object]) -> list[FailureSeen]:
    """Return the failures of what fails most; empty: they come in turn, so none of them is to blame, or of the job itself."""
    name, count = Counter(map(key, roots)).most_common(1)[0]
    return [] if name is None or count < _AGAIN else [one for one in roots if key(one) == name]


def last_failure_of(job: JobSnapshot) -> str:
    """Return what failed last, for the end of a sentence; empty: nothing has failed."""
    if not job.failures:
        return ""
    last = max((root for root, _ in job.failures), key=lambda one: one.at_ms)
    place = _place(last)
    vertex = None if place is None else job.vertex(place[0])
    if place is None or vertex is None:
        return f" after {_cause(last)}"
    return f" after a failure of {subtask_of(place[1], vertex.facts.name)}: {_cause(last)}"


def _cause(seen: FailureSeen) -> str:
    text = headline_of(seen.failure.text, seen.failure.kind)
    return shortened(without_credentials(text).rstrip("."), _MOST_OF_CAUSE)


def _place(seen: FailureSeen) -> tuple[VertexId, int] | None:
    one = seen.attempt_id
    return None if one is None else (one.vertex_id, one.subtask)


def _vertex_of(seen: FailureSeen) -> VertexId | None:
    return None if seen.attempt_id is None else seen.attempt_id.vertex_id


def sources_of(job: JobSnapshot) -> list[VertexSnapshot]:
    return [one for one in job.vertices if not one.facts.inputs]
