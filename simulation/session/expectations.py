"""What must hold in a session, by name. Counts how often each was looked at where it could break.

Written from Flink's rules of sessions, not from the tables of the machines. Source: Flink Dispatcher, JobResultStore, SlotManager.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

from simulation.invariants import Violation


class SessionName(StrEnum):
    """Invariants of sessions."""

    ONE_RUN = "a job is run by one driver at a time"
    RESULT_ONCE = "a job that has its result is not run again"
    TAKEN_ONCE = "a job that is known is not taken again"
    IN_ORDER = "jobs begin in the order in which they came, and only so many at once"
    BEGINS_IN_TIME = "a job that was taken begins in time"
    ENDS_ONCE = "every job that was taken ends, with one result"
    TOLD = "the session tells of each job how it has ended"
    CLEANED = "of a job that has ended nothing is left"
    CANCELLED = "a job that is to be cancelled ends"
    CLIENTS = "a job goes with its client, and with nothing else"
    GOES_ON = "the next driver goes on with every job that has no result"
    CLOSES = "a session that is closed lets go of all its jobs"
    POOL_BOOKS = "the books of the WorkerPool agree"
    FITS = "a worker hosts what is of its kind, in the slots that it has"
    NO_NEEDLESS_WAIT = "no TaskManager waits while a worker of its kind has room for it"
    DROPPED_ENDS = "a TaskManager that its job has dropped ends"
    FORGOTTEN = "the pool forgets a TaskManager that is over, and its slots are free"
    IDLE_ENDS = "a worker that nobody uses ends in time"
    MAKES_ROOM = "an idle worker makes room for others"
    RECOVERS = "60 s after the faults every job runs or has ended, if there is room for all"


class Expectations:
    """`evaluated`: how often, by name."""

    def __init__(self) -> None:
        self.evaluated: Counter[SessionName] = Counter()

    def expect(self, name: SessionName, holds: bool, what: object = "") -> None:
        """Raises Violation."""
        if not holds:
            raise Violation(name, str(what))
        self.evaluated[name] += 1
