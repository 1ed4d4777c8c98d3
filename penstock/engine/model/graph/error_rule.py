"""ErrorRule: what an operator does with a record at which a function of the user raises, as it travels with the operator.

Does not know dead letters or sinks. Source: none in Flink, where such an error fails the job.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """The record is put aside, and the operator goes on behind it. An operator without a rule fails the job.

    `tag`: the side output of the dead letters; None: the record is only counted. `only`: the classes of exceptions that count.
    """

    tag: str | None = None
    only: tuple[type[Exception], ...] = (Exception,)
