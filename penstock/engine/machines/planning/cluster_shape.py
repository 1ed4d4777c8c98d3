"""An imagined cluster for plans: hosts with TaskManagers and their slots.

Source: none in Flink.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.texts.amounts import counted

_HOST: Final = re.compile(r"(?P<host>[^=\s]+)=(?P<slots>[\d,\s]+)")


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """`taskmanagers`: (host, slots) of `tm-1`, `tm-2` and so on.

    `is_on_demand`: they start as slots are asked for, as on Spark; else all of them exist before
    the job.
    """

    taskmanagers: tuple[tuple[str, int], ...]
    is_on_demand: bool = False

    def __str__(self) -> str:
        count, slots = len(self.taskmanagers), {slots for _, slots in self.taskmanagers}
        each = f" of {counted(min(slots), 'slot')}" if len(slots) == 1 else ""
        return f"{counted(count, 'TaskManager')}{each}: {counted(self.slots, 'slot')} there"

    @property
    def slots(self) -> int:
        """The number of slots of all TaskManagers."""
        return sum(slots for _, slots in self.taskmanagers)

    @property
    def most_slots(self) -> int:
        return max(slots for _, slots in self.taskmanagers)

    def named(self, names: Sequence[str]) -> list[str]:
        """Return TaskManagers by their own names or by their hosts'.

        Raises: ConfigurationError: no TaskManager or host has that name.
        """
        found: list[str] = []
        for name in names:
            matching = [
                f"tm-{number}"
                for number, (host, _) in enumerate(self.taskmanagers, start=1)
                if name in {f"tm-{number}", host}
            ]
            if not matching:
                hosts = ", ".join(dict.fromkeys(host for host, _ in self.taskmanagers))
                raise ConfigurationError(
                    f"there is no TaskManager and no host {name!r} in this cluster: it has tm-1 to "
                    f"tm-{len(self.taskmanagers)} on {hosts}."
                )
            found += [one for one in matching if one not in found]
        return found

    def without(self, lost: Sequence[str]) -> ClusterShape:
        """Return the cluster without these TaskManagers; used only to count slots."""
        left = (
            one
            for number, one in enumerate(self.taskmanagers, start=1)
            if f"tm-{number}" not in lost
        )
        return ClusterShape(tuple(left), self.is_on_demand)


def alike(taskmanagers: int, slots: int, hosts: Sequence[str] = ()) -> ClusterShape:
    """Return TaskManagers with equal numbers of slots, dealt out over the hosts in turn; without
    hosts, each has its own.

    Raises: ConfigurationError: no TaskManager or no slot.
    """
    if taskmanagers < 1 or slots < 1:
        raise ConfigurationError(
            "a plan needs at least one TaskManager with at least one slot, got "
            f"{taskmanagers} TaskManagers of {slots} slots."
        )
    names = hosts or [f"host-{number + 1}" for number in range(taskmanagers)]
    places = tuple((names[number % len(names)], slots) for number in range(taskmanagers))
    return ClusterShape(places, is_on_demand=True)


def parse_shape(texts: Sequence[str]) -> ClusterShape:
    """Parse `left=3,3` and `right=2`: two TaskManagers of 3 slots on one host, one of 2 slots on
    the other.

    Raises: ConfigurationError: another form, or a TaskManager without slots.
    """
    found: list[tuple[str, int]] = []
    for text in texts:
        match = _HOST.fullmatch(text.strip())
        slots = [int(part) for part in match["slots"].split(",") if part.strip()] if match else []
        if match is None or not slots or min(slots) < 1:
            raise ConfigurationError(
                f"a host of a cluster is written HOST=SLOTS[,SLOTS...], one number for each of its "
                f"TaskManagers, for example left=3,3; got {text!r}."
            )
        found += [(match["host"], count) for count in slots]
    if not found:
        raise ConfigurationError("a cluster needs at least one host, for example left=3,3.")
    return ClusterShape(tuple(found))
