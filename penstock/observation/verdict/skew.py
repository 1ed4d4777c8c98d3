"""Subtasks that get far more records than the others of their vertex."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final

from penstock.model.ids import VertexId
from penstock.observation.jobs.snapshots import JobSnapshot
from penstock.observation.verdict.words import at_start, subtask_of

SKEW: Final = 2.0
"""A subtask that has this many times the records of the usual one of the others is skewed."""
LEAST_RECORDS: Final = 1000
MOST_TOLD: Final = 3


@dataclass(frozen=True, slots=True)
class Skew:
    """A subtask that gets far more records than the usual one of the others. `factor`: how many times."""

    vertex_id: VertexId
    name: str
    subtask: int
    factor: float

    def sentence(self) -> str:
        who = at_start(subtask_of(self.subtask, self.name))
        return f"{who} is skewed: it gets {self.times} the records of the usual one."

    @property
    def times(self) -> str:
        return f"{self.factor:,.1f} times"


def skewed(job: JobSnapshot) -> tuple[Skew, ...]:
    """Return the most skewed subtasks, worst first."""
    return tuple(sorted(_found(job), key=lambda one: -one.factor)[:MOST_TOLD])


def _found(job: JobSnapshot) -> Iterator[Skew]:
    for vertex in job.vertices:
        records = [0 if io is None else io.records_in for io in vertex.ios]
        if len(records) < 2 or max(records) < LEAST_RECORDS:
            continue
        ordered = sorted(records)
        # Those above the middle leave the same others below it, so they have one median.
        usual = max(median(ordered[:-1]), 1)
        least = max(LEAST_RECORDS, SKEW * usual)
        for subtask, count in enumerate(records):
            if count >= least:
                facts = vertex.facts
                yield Skew(facts.vertex_id, facts.name, subtask, count / usual)
