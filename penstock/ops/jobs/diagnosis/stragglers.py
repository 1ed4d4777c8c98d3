"""For which subtask the newest checkpoint waits, or waited longest, and why.

Subtasks that get far more records than the others of their vertex.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Final, TypeAlias

from penstock.engine.model.ids import VertexId
from penstock.engine.model.messages.checkpoints import CheckpointFailureReason
from penstock.ops.jobs.checkpoint_record import brief_of, missing_of
from penstock.ops.jobs.diagnosis.shares import BLOCKED, NO_SHARES, AllShares, live
from penstock.ops.jobs.diagnosis.words import at_start, lasting, subtask_of
from penstock.ops.jobs.snapshots import CheckpointSnapshot, JobSnapshot, VertexSnapshot

SKEW: Final = 2.0
"""A subtask that has this many times the records of the usual one of the others is skewed."""
LEAST_RECORDS: Final = 1000
LEAST_LATELY: Final = 200
"""Fewer records, since the start or in the last minute, are too few to say so."""
MOST_NAMED: Final = 3
Records: TypeAlias = tuple[int, ...]
AllRecords: TypeAlias = "Mapping[VertexId, Records]"
NONE_KNOWN: Final[AllRecords] = {}


@dataclass(frozen=True, slots=True)
class Skew:
    """A subtask that gets far more records than the usual one of the others. `factor`: how many times.

    `records`: those that it got. `usual`: those of the usual one; 0 counts as 1 in `factor`. `key`: the most frequent one in what it
    was sent lately, as text; "": none stands out, or its input has no keys. `key_share`: of the key's records.
    """

    vertex_id: VertexId
    name: str
    subtask: int
    factor: float
    records: int
    usual: float
    key: str = ""
    key_share: float = 0.0

    def sentence(self) -> str:
        who = at_start(subtask_of(self.subtask, self.name))
        return f"{who} is skewed: it gets {self.what}."

    @property
    def what(self) -> str:
        """What it gets."""
        key = f", {self.key_share:.0%} of them with the key {self.key}" if self.key else ""
        if not self.usual:
            return f"{self.records:,} records{key}, and the usual one gets none"
        return f"{self.factor:,.1f} times the records of the usual one{key}"


def skewed(job: JobSnapshot, formerly: AllRecords = NONE_KNOWN) -> tuple[Skew, ...]:
    """Return the most skewed subtasks, worst first. `formerly`: what they had got a minute ago; without it, all records count."""
    worst = sorted(_found(job, formerly), key=lambda one: -one.factor)[:MOST_NAMED]
    return tuple(_with_key(job, one) for one in worst)


def _with_key(job: JobSnapshot, skew: Skew) -> Skew:
    """Name the key of which the subtask was sent most, by the samples of those that send to it."""
    counts: Counter[str] = Counter()
    records = 0
    by_id = {one.facts.vertex_id: one for one in job.vertices}
    for edge in by_id[skew.vertex_id].facts.inputs:
        for _, io in live(by_id[edge.source]):
            found = [
                one
                for one in io.frequent_keys
                if (one.data_set_id, one.channel) == (edge.data_set_id, skew.subtask)
            ]
            counts.update({one.key: one.count for one in found})
            records += max((one.records for one in found), default=0)
    if not counts:
        return skew
    key, count = counts.most_common(1)[0]
    return replace(skew, key=key, key_share=count / records)


def records_of(vertex: VertexSnapshot) -> Records:
    """Return the records that each subtask has got; 0: it has not reported."""
    return tuple(0 if io is None else io.records_in for io in vertex.ios)


def _found(job: JobSnapshot, formerly: AllRecords) -> Iterator[Skew]:
    for vertex in job.vertices:
        records = records_of(vertex)
        # A source reads many records at once when nobody makes it wait, so that a minute says little.
        former = formerly.get(vertex.facts.vertex_id, ()) if vertex.facts.inputs else ()
        enough = LEAST_RECORDS
        if len(former) == len(records) > 0:
            enough = LEAST_LATELY
            # An attempt that is newer than that counts from the beginning.
            pairs = zip(records, former, strict=True)
            records = tuple(now - then if now >= then else now for now, then in pairs)
        if len(records) < 2 or max(records) < enough:
            continue
        ordered = sorted(records)
        # Those above the middle leave the same others below it, so they have one median.
        usual = median(ordered[:-1])
        least = max(enough, SKEW * usual)
        for subtask, count in enumerate(records):
            if count >= least:
                facts = vertex.facts
                yield Skew(
                    facts.vertex_id, facts.name, subtask, count / max(usual, 1), count, usual
                )


_LEAST_SLOW_MS: Final = 1000
_SLOW_SAVEPOINT_MS: Final = 10_000
_PHASES: Final = {
    "start_delay_ms": "its barriers were on their way",
    "alignment_ms": "it waited for the barriers of its other channels",
    "sync_ms": "its snapshot kept it from working",
    "async_ms": "its state was written",
}


@dataclass(frozen=True, slots=True)
class Straggler:
    """The subtask for which the newest checkpoint waited longest, or still waits. `after_ms`: since the checkpoint began.

    `others`: how many more are missing. `reason`: what took it most of the time, or why it is missing; empty: nobody knows.
    `is_slow`: checkpoints take longer than they are apart.
    """

    checkpoint_id: int
    vertex_id: VertexId
    name: str
    subtask: int
    after_ms: int
    is_missing: bool
    others: int = 0
    reason: str = ""
    is_slow: bool = False

    def sentence(self) -> str:
        who = subtask_of(self.subtask, self.name)
        why = f": {self.reason}" if self.reason else ""
        if not self.is_missing:
            return (
                f"Checkpoint {self.checkpoint_id} waited {lasting(self.after_ms)} for {who}{why}."
            )
        more = f" and {self.others} more" if self.others else ""
        who = f"{who}{more} for {lasting(self.after_ms)}"
        return f"Checkpoint {self.checkpoint_id} waits for {who}{why}."


def straggler_of(job: JobSnapshot, shares: AllShares) -> Straggler | None:
    """Of the newest checkpoint that is complete, under way, or took too long."""
    newest = next((one for one in job.checkpoints.history if _counts(one)), None)
    if newest is None:
        return None
    brief = brief_of(newest, job.now_ms)
    missing = [] if newest.is_completed else _missing(job, newest)
    first = brief.straggler if newest.is_completed else next(iter(missing), None)
    vertex = None if first is None else job.vertex(first[0])
    if first is None or vertex is None:
        return None
    vertex_id, subtask = first
    return Straggler(
        newest.checkpoint_id,
        vertex_id,
        vertex.facts.name,
        subtask,
        brief.after_ms,
        is_missing=bool(missing),
        others=max(0, len(missing) - 1),
        reason=_reason(vertex, newest, subtask, shares),
        is_slow=newest.is_failed or _is_slow(job, brief.after_ms),
    )


def _missing(job: JobSnapshot, checkpoint: CheckpointSnapshot) -> list[tuple[VertexId, int]]:
    """Return who is waited for, from the sources on: the later ones wait for its barrier."""
    states = {
        (vertex.facts.vertex_id, one.subtask): one.state
        for vertex in job.vertices
        for one in vertex.attempts
    }
    missing = ((one, i) for one in checkpoint.subtasks for i in missing_of(checkpoint, one))
    return [one for one in missing if one in states and not states[one].is_terminal]


def _counts(checkpoint: CheckpointSnapshot) -> bool:
    failure = checkpoint.failure
    return failure is None or failure.startswith(CheckpointFailureReason.CHECKPOINT_EXPIRED)


def _is_slow(job: JobSnapshot, after_ms: int) -> bool:
    return after_ms >= max(_LEAST_SLOW_MS, job.facts.checkpoint_interval_ms or _SLOW_SAVEPOINT_MS)


def _reason(
    vertex: VertexSnapshot, checkpoint: CheckpointSnapshot, subtask: int, shares: AllShares
) -> str:
    """What took a subtask most of the time, or why it is missing."""
    for ack in checkpoint.acks.get(vertex.facts.vertex_id, ()):
        if ack.subtask == subtask:
            spent = ((float(getattr(ack.metrics, name)), words) for name, words in _PHASES.items())
            spent_ms, words = max(spent)
            return f"{lasting(int(spent_ms))} long {words}" if spent_ms >= _LEAST_SLOW_MS else ""
    is_behind = any(
        shares.get(one.source, NO_SHARES).blocked >= BLOCKED for one in vertex.facts.inputs
    )
    return "back pressure holds its barriers up" if is_behind else ""
