"""Events by which the master of all generations of a job changes one of them. Plain data; the host never sends them.

They have no time of their own: they belong to the event that the master has got.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.machines.job.handed_over import HandedOver
from penstock.engine.model.ids import ResourceId, VertexId


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Begin where the generation before has stopped, but on none of the TaskManagers that are `leaving`."""

    left: HandedOver
    leaving: frozenset[ResourceId] = frozenset()


@dataclass(frozen=True, slots=True)
class LeaveRestarts:
    """Leave the next restart of the whole job to another generation."""


@dataclass(frozen=True, slots=True)
class LeaveFreeSlots:
    """Give back what is free on these TaskManagers."""

    leaving: frozenset[ResourceId]


@dataclass(frozen=True, slots=True)
class HoldSlots:
    """Hold at least so many slots, whatever the tasks ask for now, and none that is free on TaskManagers that are `leaving`."""

    count: int
    leaving: frozenset[ResourceId] = frozenset()


@dataclass(frozen=True, slots=True)
class WaitForSlots:
    """The next generation cannot begin yet: as `HoldSlots`, and a job that runs is RESTARTING from now on."""

    count: int
    leaving: frozenset[ResourceId] = frozenset()


@dataclass(frozen=True, slots=True)
class HandOver:
    """Take a checkpoint behind which all tasks end, but those of vertices that are `kept`: no edge may join them with others."""

    kept: frozenset[VertexId] = frozenset()


@dataclass(frozen=True, slots=True)
class HandoverFailureNoted:
    """It is known that the last handover has failed, and another one may begin."""


@dataclass(frozen=True, slots=True)
class GiveUpKept:
    """The next generation cannot begin beside the tasks that run on. They end too, and it begins as after a failure."""
