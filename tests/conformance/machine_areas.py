"""Runtime areas that the control plane's machines answer: the TaskManager's slot table."""

import re
from collections.abc import Callable
from typing import Any

from penstock.machines.task_slots import TaskSlots
from penstock.model.errors import ExternalError
from penstock.model.ids import (
    AllocationId,
    AttemptId,
    ExecutionVertexId,
    JobId,
    ResourceId,
    VertexId,
)

ME = ResourceId("tm")


class SlotTable:
    """Runs the ops of a case; what a case leaves out is what was named last."""

    def __init__(self, slots: int) -> None:
        self._slots = TaskSlots(slots)
        self._allocation = AllocationId("a1")
        self._first_ticket: int | None = None
        self._places: dict[str, AllocationId] = {}

    def run(self, op: str) -> Any:
        named = re.search(r"\b([a-z]\d+)\b(?<!idx\d)", re.sub(r"idx\d+", "", op))
        name = named[1] if named else None
        if op.startswith("allocate"):
            return self._allocate(op, name)
        if op.startswith("mark_active"):
            return self._slots.mark_active(AllocationId(name or self._allocation))
        if op.startswith("timeout"):
            return self._timeout(op)
        if op.startswith("add task"):
            return self._add(name if name in self._places or name else "t1")
        if op.startswith("free"):
            return self._free(AllocationId(name or self._allocation))
        if "terminates" in op or "ends" in op:
            return self._end(name or "t1")
        raise ValueError(f"unknown op {op!r}")

    def _allocate(self, op: str, name: str | None) -> bool:
        index = re.search(r"idx(-?\d+)", op)
        job = re.search(r"\bjob(\w+)", op)
        self._allocation = AllocationId(name or self._allocation)
        done = self._slots.allocate(
            int(index[1]) if index else 0, JobId(job[1] if job else "A"), self._allocation
        )
        if self._first_ticket is None:
            self._first_ticket = self._slots.ticket_of(self._allocation)
        return done

    def _timeout(self, op: str) -> Any:
        current = self._slots.ticket_of(self._allocation)
        ticket = self._first_ticket if "old" in op or current is None else current
        assert ticket is not None
        if not self._slots.is_timed_out(self._allocation, ticket):
            return "ignored"
        return self._free(self._allocation)

    def _add(self, task: str | None) -> bool:
        name = task or "t1"
        self._slots.add_task(self._allocation, _attempt(name))
        self._places[name] = self._allocation
        return True

    def _free(self, allocation: AllocationId) -> Any:
        if self._slots.slot(allocation) is None:
            raise ExternalError(f"no slot of allocation {allocation}")
        freed = self._slots.free(ME, allocation)
        return f"index {freed[0].slot_index}" if freed else "RELEASING"

    def _end(self, task: str) -> Any:
        freed = self._slots.task_ended(self._places[task], _attempt(task))
        return f"index {freed[0].slot_index}" if freed else "RELEASING"


def slot_table(given: dict[str, Any], expect: dict[str, Any]) -> str | None:
    """The cases speak prose in places, so the adapter judges by itself."""
    table = SlotTable(given.get("slots", 1))
    for place, op in enumerate(given["ops"]):
        try:
            got = table.run(op)
        except ExternalError as error:
            is_wanted = expect.get("error_on") == place + 1
            return None if is_wanted else f"op {place + 1} ({op}): refused: {error}"
        if expect.get("error_on") == place + 1:
            return f"op {place + 1} ({op}): expected a refusal, got {got!r}"
        if "results" in expect and not _is_same(expect["results"][place], got):
            return f"op {place + 1} ({op}): expected {expect['results'][place]!r}, got {got!r}"
    return None


def _is_same(wanted: Any, got: Any) -> bool:
    if isinstance(wanted, bool):
        return wanted is got
    if wanted == "ok":
        return got is True
    if wanted == "slot free":
        return isinstance(got, str) and got.startswith("index")
    if isinstance(wanted, str) and "RELEASING" in wanted:
        return got == "RELEASING"
    return bool(wanted == got)


def _attempt(name: str) -> AttemptId:
    return AttemptId(ExecutionVertexId(VertexId(name), 0), 0)


AREAS: dict[str, Callable[..., Any]] = {"slot_table": slot_table}
