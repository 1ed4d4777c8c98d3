"""For which subtask the newest checkpoint waits, or waited longest, and why.

Subtasks that get far more records than the others of their vertex.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, TypeAlias

from penstock.engine.model.checkpoints import CheckpointMetrics
from penstock.engine.model.ids import VertexId
from penstock.engine.model.messages.checkpoints import CheckpointFailureReason
from penstock.ops.jobs.diagnosis.shares import BLOCKED, NO_SHARES, AllShares
from penstock.ops.jobs.diagnosis.words import at_start, lasting, subtask_of
from penstock.ops.jobs.snapshots import CheckpointSnapshot, JobSnapshot, VertexSnapshot

SKEW: Final = 2.0
"""A subtask that has this many times the records of the usual one of the others is skewed."""
LEAST_RECORDS: Final = 1000
LEAST_LATELY: Final = 200
"""Fewer records, since the start or in the last minute, are too few to say so."""
MOST_TOLD: Final = 3
Records: TypeAlias = tuple[int, ...]
AllRecords: TypeAlias = "Mapping[VertexId, Records]"
NONE_KNOWN: Final[AllRecords] = {}


@dataclass(frozen=True, slots=True)
class Skew:
    """A subtask that gets far more records than the usual one of the others. `factor`: how many times.

    `records`: those that it got. `usual`: those of the usual one; 0 counts as 1 in `factor`.
    """

    vertex_id: VertexId
    name: str
    subtask: int
    factor: float
    records: int
    usual: float

    def sentence(self) -> str:
        who = at_start(subtask_of(self.subtask, self.name))
        return f"{who} is skewed: it gets {self.what}."

    @property
    def what(self) -> str:
        """What it gets."""
        if not self.usual:
            return f"{self.records:,} records, and the usual one gets none"
        return f"{self.factor:,.1f} times the records of the usual one"


def skewed(job: JobSnapshot, formerly: AllRecords = NONE_KNOWN) -> tuple[Skew, ...]:
    """Return the most skewed subtasks, worst first. `formerly`: what they had got a minute ago; without it, all records count."""
    return tuple(sorted(_found(job, formerly), key=lambda one: -one.factor)[:MOST_TOLD])


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
_PHASES: Final = (
    ("start_delay_ms", "its barriers were on their way"),
    ("alignment_ms", "it waited for the barriers of its other channels"),
    ("sync_ms", "its snapshot kept it from working"),
    ("async_ms", "its state was written"),
)


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
    newest = next((one for one in job.checkpoints.history if _is_told(one)), None)
    if newest is None:
        return None
    return _last(job, newest) if newest.is_completed else _awaited(job, newest, shares)


def _is_told(checkpoint: CheckpointSnapshot) -> bool:
    failure = checkpoint.failure
    return failure is None or failure.startswith(CheckpointFailureReason.CHECKPOINT_EXPIRED)


def _is_slow(job: JobSnapshot, after_ms: int) -> bool:
    facts = job.facts.checkpoints
    interval_ms = None if facts is None else facts.interval_ms
    return after_ms >= max(_LEAST_SLOW_MS, interval_ms or _SLOW_SAVEPOINT_MS)


def _last(job: JobSnapshot, checkpoint: CheckpointSnapshot) -> Straggler | None:
    """The subtask that acknowledged last."""
    acks = [
        (ack, vertex.facts)
        for vertex in job.vertices
        for ack in checkpoint.acks.get(vertex.facts.vertex_id, ())
    ]
    if not acks:
        return None
    last, facts = max(acks, key=lambda one: one[0].ack_ms)
    after_ms = last.ack_ms - checkpoint.triggered_ms
    return Straggler(
        checkpoint.checkpoint_id,
        facts.vertex_id,
        facts.name,
        last.subtask,
        after_ms,
        is_missing=False,
        reason=_longest_phase(last.metrics),
        is_slow=_is_slow(job, after_ms),
    )


def _longest_phase(metrics: CheckpointMetrics) -> str:
    spent_ms, words = max((float(getattr(metrics, name)), words) for name, words in _PHASES)
    return f"{lasting(int(spent_ms))} long {words}" if spent_ms >= _LEAST_SLOW_MS else ""


def _awaited(
    job: JobSnapshot, checkpoint: CheckpointSnapshot, shares: AllShares
) -> Straggler | None:
    """The first subtask from the sources on that has not acknowledged: those behind it wait for its barrier."""
    missing = _missing(job.vertices, checkpoint)
    if not missing:
        return None
    vertex, subtask = missing[0]
    before = {one.source for one in vertex.facts.inputs}
    is_behind = any(shares.get(one, NO_SHARES).blocked >= BLOCKED for one in before)
    until_ms = checkpoint.ended_ms if checkpoint.is_failed else job.now_ms
    after_ms = until_ms - checkpoint.triggered_ms
    return Straggler(
        checkpoint.checkpoint_id,
        vertex.facts.vertex_id,
        vertex.facts.name,
        subtask,
        after_ms,
        is_missing=True,
        others=len(missing) - 1,
        reason="back pressure holds its barriers up" if is_behind else "",
        is_slow=checkpoint.is_failed or _is_slow(job, after_ms),
    )


def _missing(
    vertices: Sequence[VertexSnapshot], checkpoint: CheckpointSnapshot
) -> list[tuple[VertexSnapshot, int]]:
    found: list[tuple[VertexSnapshot, int]] = []
    for vertex in vertices:
        acked = {ack.subtask for ack in checkpoint.acks.get(vertex.facts.vertex_id, ())}
        found += [
            (vertex, attempt.subtask)
            for attempt in vertex.attempts
            if attempt.subtask not in acked and not attempt.state.is_terminal
        ]
    return found
