"""A plan as data, and as text of at most 100 characters a line.

Knows no machine; `planner.py` makes plans.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.texts.amounts import counted

WIDTH: Final = 100
_TASK: Final = re.compile(r"(?P<name>.*)\[(?P<subtask>\d+)\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SlotNode:
    """A SimpleSlot with one task, or a SharedSlot with slots inside."""

    kind: str
    label: str
    children: list[SlotNode] = field(default_factory=list)

    def lines(self, depth: int = 0) -> Iterator[str]:
        yield f"{'  ' * depth}{self.kind} {self.label}"
        for child in self.children:
            yield from child.lines(depth + 1)


@dataclass(frozen=True, slots=True)
class PlannedSlot:
    """One physical slot with the tasks that would run in it."""

    resource_id: str
    host: str
    slot_index: int
    tasks: list[str]
    tree: SlotNode


@dataclass(frozen=True, slots=True)
class VertexPlan:
    """One job vertex. `regions`: the regions that its subtasks belong to, by number."""

    name: str
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str
    co_location_group: str | None
    regions: list[int]


@dataclass(frozen=True, slots=True)
class Plan:
    """`without_slot`: subtasks without a slot. `waiting`: those, and the subtasks that are deployed
    only with them.

    `restarted`: after a loss, subtasks with new attempts.
    """

    job_name: str
    shape: ClusterShape
    slots_wanted: int
    vertices: list[VertexPlan]
    regions: list[list[str]]
    sharing_groups: list[list[str]]
    slots: list[PlannedSlot]
    without_slot: list[str]
    waiting: list[str]
    restarted: list[str] = field(default_factory=list)

    @property
    def is_sufficient(self) -> bool:
        return not self.waiting

    def slot_of(self, task: str) -> PlannedSlot | None:
        """Return the slot of a subtask such as `Map[2]`."""
        return next((slot for slot in self.slots if task in slot.tasks), None)

    def render(self, max_slots: int = 200, max_groups: int = 50) -> str:
        """Return the plan as text. Of more slots and groups than the limits, only the number is shown."""
        parts = [
            *self._head(),
            "",
            *_section("Job vertices", map(_vertex_line, self.vertices)),
            *_section("Pipelined regions", _numbered("region", self.regions, max_groups)),
            *_section(
                "Slot sharing (one slot each)",
                _numbered("slot", self.sharing_groups, max_groups),
            ),
            *_section("Slots", self.slot_lines(max_slots)),
            *self.verdict(),
        ]
        return "\n".join(line for part in parts for line in _wrap(part))

    def _head(self) -> list[str]:
        return [f"Plan of job '{self.job_name}'", f"{self.shape}, {self.slots_wanted} wanted"]

    def slot_lines(self, max_slots: int) -> Iterator[str]:
        """Yield each slot with its tree."""
        for slot in self.slots[:max_slots]:
            yield f"{slot.resource_id} on {slot.host}, slot {slot.slot_index}"
            yield from slot.tree.lines(1)
        if len(self.slots) > max_slots:
            yield f"... and {len(self.slots) - max_slots} more slots"

    def verdict(self) -> list[str]:
        """Return whether the slots suffice, and what to change if not."""
        if self.is_sufficient:
            free = self.shape.slots - len(self.slots)
            return [
                f"Every subtask has a slot; {counted(free, 'slot')} stay{'s' * (free == 1)} free."
            ]
        lacking = self.slots_wanted - self.shape.slots
        needed = -(-self.slots_wanted // self.shape.most_slots)
        without = ", ".join(task_ranges(self.without_slot))
        lines = [f"The slots do not suffice: {lacking} are missing. Without a slot: {without}."]
        if len(self.waiting) > len(self.without_slot):
            lines.append(
                "A region is deployed as a whole, so none of these would start: "
                f"{', '.join(task_ranges(self.waiting))}."
            )
        each = -(-self.slots_wanted // len(self.shape.taskmanagers))
        lines.append(
            f"Take {needed} TaskManagers, or {each} slots per TaskManager "
            "(taskmanager.numberOfTaskSlots), or lower the parallelism."
        )
        return lines


def render_loss(before: Plan, after: Plan, lost: Sequence[str]) -> str:
    """Return as text what the loss of TaskManagers changes: which subtasks move, and which wait."""
    names = ", ".join(lost)
    moved: dict[tuple[str, str], list[str]] = {}
    for tasks in before.sharing_groups:
        for task in tasks:
            places = (_place_of(before, task), _place_of(after, task))
            moved.setdefault(places, []).append(task)
    stayed = [task for (old, new), tasks in moved.items() if old == new for task in tasks]
    lines = [
        f"{old} -> {new}: {', '.join(task_ranges(tasks))}"
        for (old, new), tasks in moved.items()
        if old != new
    ]
    if stayed:
        lines.append(f"in their old slots, restarted or not: {', '.join(task_ranges(stayed))}")
    parts = [
        f"After the loss of {names}",
        f"{after.shape}, {after.slots_wanted} wanted",
        "",
        *_section("New attempts", [", ".join(task_ranges(after.restarted)) or "of none"]),
        *_section("Moves", lines),
        *_section("Slots", after.slot_lines(200)),
        *after.verdict(),
    ]
    return "\n".join(line for part in parts for line in _wrap(part))


def _place_of(plan: Plan, task: str) -> str:
    slot = plan.slot_of(task)
    return "no slot" if slot is None else f"{slot.resource_id} slot {slot.slot_index}"


def task_ranges(tasks: Iterable[str]) -> list[str]:
    """Shorten `A[0]`, `A[1]`, `A[2]`, `B[7]` to `A[0..2]`, `B[7]`."""
    found: list[str] = []
    matches = [match for task in tasks if (match := _TASK.fullmatch(task))]
    for name, members in groupby(matches, key=lambda match: match["name"]):
        subtasks = sorted(int(member["subtask"]) for member in members)
        found += [f"{name}[{_span(run)}]" for run in _runs(subtasks)]
    return found


def _span(run: list[int]) -> str:
    return str(run[0]) if run[0] == run[-1] else f"{run[0]}..{run[-1]}"


def _runs(numbers: list[int]) -> Iterator[list[int]]:
    run: list[int] = []
    for number in numbers:
        if run and number != run[-1] + 1:
            yield run
            run = []
        run.append(number)
    if run:
        yield run


def _vertex_line(vertex: VertexPlan) -> str:
    co_location = f", co-location '{vertex.co_location_group}'" if vertex.co_location_group else ""
    first, last = vertex.regions[0], vertex.regions[-1]
    regions = f"region {first}" if first == last else f"regions {first} to {last}"
    return (
        f"{vertex.name}: parallelism {vertex.parallelism} (at most {vertex.max_parallelism}), "
        f"group '{vertex.slot_sharing_group}'{co_location}, {regions}"
    )


def _numbered(word: str, groups: list[list[str]], limit: int) -> Iterator[str]:
    for number, tasks in enumerate(groups[:limit]):
        yield f"{word} {number}: {', '.join(task_ranges(tasks))}"
    if len(groups) > limit:
        yield f"... and {len(groups) - limit} more"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    return [title, *(f"  {line}" for line in lines), ""]


def _wrap(line: str) -> list[str]:
    """Wrap a long line with a deeper indent; names longer than a line are broken."""
    indent = len(line) - len(line.lstrip())
    return textwrap.wrap(
        line, WIDTH, subsequent_indent=" " * (indent + 4), drop_whitespace=True
    ) or [""]


_HOST: Final = re.compile(r"(?P<host>[^=\s]+)=(?P<slots>[\d,\s]+)")


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """An imagined cluster for plans: hosts with TaskManagers and their slots.

    Source: none in Flink.

    `taskmanagers`: (host, slots) of `tm-1`, `tm-2` and so on.

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
    """Parse `left=3,3` and `right=2`: two TaskManagers of 3 slots on one host, one of 2 slots on the other.

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
