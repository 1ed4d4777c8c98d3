"""The verdict on a job, in sentences with names, and as data. The first sentence says what matters most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.ids import VertexId
from penstock.engine.model.states import ExecutionState, JobStatus
from penstock.ops.jobs.diagnosis.history import Since
from penstock.ops.jobs.diagnosis.limits import Limit, limits_of
from penstock.ops.jobs.diagnosis.shares import BLOCKED, NO_SHARES, AllShares, Shares, all_shares
from penstock.ops.jobs.diagnosis.stragglers import NONE_KNOWN as NO_RECORDS
from penstock.ops.jobs.diagnosis.stragglers import Skew, Straggler, skewed, straggler_of
from penstock.ops.jobs.diagnosis.troubles import (
    Repeated,
    Waiting,
    last_failure_of,
    repeated_of,
    sources_of,
    waiting_of,
)
from penstock.ops.jobs.diagnosis.watermarks import Figures, Holder, holder_of
from penstock.ops.jobs.diagnosis.words import names_text, since_text, subtask_of
from penstock.ops.jobs.snapshots import JobSnapshot

NO_FIGURES: Final = Figures()
_MOSTLY_IDLE: Final = 0.5
_FAILED: Final = frozenset({JobStatus.FAILING, JobStatus.RESTARTING})


@dataclass(frozen=True, slots=True)
class Verdict:
    """The diagnosis of one job.

    `sentences`: what is wrong, the worst first; or that nothing is. `watermark`, `straggler`: also of a job that is well.

    `further_limits`: other vertices that limit a branch of the job each.
    """

    sentences: tuple[str, ...]
    is_healthy: bool = False
    limit: Limit | None = None
    skewed: tuple[Skew, ...] = ()
    watermark: Holder | None = None
    straggler: Straggler | None = None
    waiting: Waiting | None = None
    repeated: Repeated | None = None
    shares: Mapping[VertexId, Shares] = field(default_factory=dict)
    further_limits: tuple[Limit, ...] = ()

    @property
    def sentence(self) -> str:
        return self.sentences[0]


def verdict_on(job: JobSnapshot, since: Since, figures: Figures = NO_FIGURES) -> Verdict:
    """Return the verdict. `since`: since when things are as they are."""
    since = since.not_after(job.now_ms)
    shares = all_shares(job, since.shares)
    is_streaming = job.facts.job_type is JobType.STREAMING
    is_waiting = job.status is JobStatus.RUNNING and is_streaming
    limits = limits_of(job, shares, since.limits)
    found = Verdict(
        (),
        limit=limits[0] if limits else None,
        further_limits=limits[1:],
        skewed=skewed(job, since.records if is_streaming else NO_RECORDS),
        watermark=holder_of(job, since.watermarks, figures),
        straggler=straggler_of(job, shares),
        waiting=waiting_of(job) if is_waiting else None,
        repeated=None if job.status.is_terminal else repeated_of(job),
        shares=shares,
    )
    return _with_sentences(job, found, figures)


def _with_sentences(job: JobSnapshot, found: Verdict, figures: Figures) -> Verdict:
    if job.status.is_terminal:
        why = last_failure_of(job) if job.status is JobStatus.FAILED else ""
        text = f"The job has ended: {job.status}{why}."
        return replace(found, sentences=(text,), is_healthy=job.status is JobStatus.FINISHED)
    illnesses = tuple(_illnesses(job, found, figures))
    if illnesses:
        return replace(found, sentences=illnesses)
    if job.facts.job_type is JobType.BATCH:
        return replace(found, sentences=(_of_stages(job),), is_healthy=True)
    text, is_healthy = _of_well_job(job, found.shares)
    return replace(found, sentences=(text,), is_healthy=is_healthy)


def _illnesses(job: JobSnapshot, found: Verdict, figures: Figures) -> Iterator[str]:
    """What is wrong, the worst first."""
    now_ms = job.now_ms
    if found.repeated is not None:
        yield found.repeated.sentence(now_ms)
    if job.status is not JobStatus.RUNNING:
        since = since_text(now_ms, job.timestamps.get(job.status))
        why = last_failure_of(job) if job.status in _FAILED else ""
        yield f"The job is {job.status}{since}{why}."
    elif found.waiting is not None:
        yield found.waiting.sentence(now_ms)
    limits = () if found.limit is None else (found.limit, *found.further_limits)
    explained = []
    for place, limit in enumerate(limits):
        causes = [one for one in found.skewed if _is_of(one, limit)]
        explained += causes
        why = f", because it gets {causes[0].what}" if causes else ""
        yield limit.sentence(now_ms, why, is_further=place > 0)
    if not limits:
        yield from _starving(job, found.shares, figures)
    if found.watermark is not None and found.watermark.is_held:
        yield found.watermark.sentence(now_ms)
    if found.straggler is not None and found.straggler.is_slow:
        yield found.straggler.sentence()
    for one in found.skewed:
        if one not in explained and _is_waited_for(job, one.vertex_id, found.shares, limits):
            yield one.sentence()


def _is_waited_for(
    job: JobSnapshot, vertex_id: VertexId, shares: AllShares, limits: tuple[Limit, ...]
) -> bool:
    """Whether somebody waits for a vertex, and not for one that limits the job.

    Otherwise its skew costs nothing: a job with few keys always has one.
    """
    explained = {name for limit in limits for name in limit.upstream}
    by_id = {one.facts.vertex_id: one.facts for one in job.vertices}
    return any(
        shares.get(one.source, NO_SHARES).blocked >= BLOCKED
        and by_id[one.source].name not in explained
        for one in by_id[vertex_id].inputs
    )


def _is_of(skew: Skew, limit: Limit) -> bool:
    return (skew.vertex_id, skew.subtask) == (limit.vertex_id, limit.subtask)


def _starving(job: JobSnapshot, shares: AllShares, figures: Figures) -> Iterator[str]:
    """Sources that wait although there is something to read."""
    for vertex in sources_of(job):
        own = shares[vertex.facts.vertex_id]
        if own.is_known and own.idle >= _MOSTLY_IDLE:
            pending = figures.pending_records(vertex)
            if pending > 0:
                yield (
                    f"'{vertex.facts.name}' cannot deliver: it is idle {own.idle:.0%} of the time "
                    f"although {pending:,} records wait to be read, and nobody downstream is slow."
                )


def _of_stages(job: JobSnapshot) -> str:
    """How far a BATCH job has come."""
    done, names = 0, []
    for vertex in job.vertices:
        ended = sum(one.state.is_terminal for one in vertex.attempts)
        if vertex.attempts and ended == len(vertex.attempts):
            done += 1
        elif any(one.state is not ExecutionState.CREATED for one in vertex.attempts):
            names.append(f"'{vertex.facts.name}' ({ended} of {len(vertex.attempts)} subtasks)")
    text = f"{done} of {len(job.vertices)} stages have ended"
    if names:
        text += f"; these run: {', '.join(names)}"
    return f"The job is healthy: {text}."


def _of_well_job(job: JobSnapshot, shares: AllShares) -> tuple[str, bool]:
    """The sentence on a job with which nothing is wrong, and whether that is known."""
    known = [one for one in job.vertices if shares[one.facts.vertex_id].is_known]
    if not known:
        return "No subtask has reported yet.", False
    idle = [
        (vertex.facts.name, shares[vertex.facts.vertex_id].idle)
        for vertex in sources_of(job)
        if shares.get(vertex.facts.vertex_id, NO_SHARES).is_known
    ]
    if idle and all(share >= _MOSTLY_IDLE for _, share in idle):
        names = names_text([name for name, _ in idle])
        verb = "is" if len(idle) == 1 else "are"
        least = min(share for _, share in idle)
        text = f"{names} {verb} idle {least:.0%} of the time"
        return f"The job is healthy: nobody is slow, and it waits for its input; {text}.", True
    busiest = max(known, key=lambda one: shares[one.facts.vertex_id].busy)
    own = shares[busiest.facts.vertex_id]
    who = subtask_of(own.busiest, busiest.facts.name)
    text = f"it keeps up with its input; the busiest is {who}, {own.busy:.0%} of the time"
    return f"The job is healthy: {text}.", True
