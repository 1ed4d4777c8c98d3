"""Who limits a running job: the vertex that others wait for and that waits for nobody.

Source: the rule by which Flink's users read its job graph; Flink itself draws no conclusion.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.engine.model.ids import VertexId
from penstock.ops.jobs.diagnosis.shares import (
    BLOCKED,
    BUSY,
    MOSTLY_BLOCKED,
    NO_SHARES,
    AllShares,
    Shares,
)
from penstock.ops.jobs.diagnosis.words import names_text, since_text
from penstock.ops.jobs.snapshots import JobSnapshot, VertexSnapshot

MOST_NAMED: Final = 3
_LESS_BUSY: Final = 0.1
_LESS_BLOCKED: Final = 0.05
"""A vertex that limits the job stays the one until shares are this far below what made it so: shares of 5 s vary."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The vertex that limits the job. `subtask`: its busiest one. `upstream`: names of the vertices that wait for it."""

    vertex_id: VertexId
    name: str
    subtask: int
    busy: float
    is_one_subtask: bool
    upstream: tuple[str, ...]
    since_ms: int | None

    def sentence(self, now_ms: int, why: str = "", *, is_further: bool = False) -> str:
        """`why`: what makes its subtask slow; empty: nothing more is known. `is_further`: another one limits the job more."""
        since = (" too" if is_further else "") + since_text(now_ms, self.since_ms)
        busy = "busy" if self.busy >= BUSY else "busy only"
        what = f"subtask {self.subtask} is {busy} {self.busy:.0%}"
        if self.is_one_subtask:
            what += ", most others are not"
        what += why
        if not self.upstream:
            return (
                f"'{self.name}' limits the job{since}: its {what}, and nobody downstream makes it "
                "wait."
            )
        verb = "waits" if len(self.upstream) == 1 else "wait"
        names = names_text(self.upstream)
        return f"'{self.name}' limits the job{since}: its {what}; {names} {verb} for it."


def limiting(
    job: JobSnapshot, shares: AllShares, known: Container[VertexId] = ()
) -> Mapping[VertexId, tuple[str, ...]]:
    """Return the vertices that limit the job, with the names of those that wait for each. `known`: those that did at the last look.

    A vertex does if it is busy, waits for nobody, and is a source or has others that wait for it. If there is none, yet somebody
    waits most of the time, then it is the next vertex downstream that does not wait.
    """
    found = {}
    fallback = {}
    for vertex in job.vertices:
        vertex_id = vertex.facts.vertex_id
        own = shares.get(vertex_id, NO_SHARES)
        if not own.is_known:
            continue
        busy, blocked = (_LESS_BUSY, _LESS_BLOCKED) if vertex_id in known else (0.0, 0.0)
        before = {one.source for one in vertex.facts.inputs}
        if own.busy >= BUSY - busy and own.busiest_blocked < BLOCKED + blocked:
            waiting = _waiting(job, shares, before, BLOCKED - blocked)
            if waiting or not before:
                found[vertex_id] = waiting
        elif own.blocked < BLOCKED + blocked:
            waiting = _waiting(job, shares, before, MOSTLY_BLOCKED - blocked)
            if waiting:
                fallback[vertex_id] = waiting
    return found or fallback


def _waiting(
    job: JobSnapshot, shares: AllShares, before: set[VertexId], least: float
) -> tuple[str, ...]:
    return tuple(
        one.facts.name
        for one in job.vertices
        if one.facts.vertex_id in before
        and shares.get(one.facts.vertex_id, NO_SHARES).blocked >= least
    )


def limits_of(
    job: JobSnapshot, shares: AllShares, since_ms: Mapping[VertexId, int]
) -> tuple[Limit, ...]:
    """Return the limiting vertices, the one for which most others wait first, of equals the busiest first.

    Further ones are those of other branches: somebody waits for them, and they are not among those that wait for another one.
    """
    found = limiting(job, shares, since_ms)

    def weight(vertex: VertexSnapshot) -> tuple[int, float]:
        vertex_id = vertex.facts.vertex_id
        return len(found[vertex_id]), shares[vertex_id].busy

    chosen = sorted(
        (one for one in job.vertices if one.facts.vertex_id in found), key=weight, reverse=True
    )
    waiting = {name for names in found.values() for name in names}
    further = [
        one for one in chosen[1:] if found[one.facts.vertex_id] and one.facts.name not in waiting
    ]
    named = [*chosen[:1], *further][:MOST_NAMED]
    return tuple(_limit(one, shares, found, since_ms) for one in named)


def _limit(
    vertex: VertexSnapshot,
    shares: AllShares,
    found: Mapping[VertexId, tuple[str, ...]],
    since_ms: Mapping[VertexId, int],
) -> Limit:
    facts = vertex.facts
    own: Shares = shares[facts.vertex_id]
    return Limit(
        facts.vertex_id,
        facts.name,
        own.busiest,
        own.busy,
        own.usual_busy < BUSY <= own.busy,
        found[facts.vertex_id],
        since_ms.get(facts.vertex_id),
    )
