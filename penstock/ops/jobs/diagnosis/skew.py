"""Subtasks that get far more records than the others of their vertex."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final, TypeAlias

from penstock.engine.model.ids import VertexId
from penstock.ops.jobs.diagnosis.words import at_start, subtask_of
from penstock.ops.jobs.snapshots import JobSnapshot, VertexSnapshot

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
