"""Decided restarts: which subtasks restart, at what time, and which attempts must end first.

Knows no back-off and no slots. Source: Flink DefaultScheduler.restartTasks,
ExecutionVertexVersioner (docs/spec/failover.md#from-failure-to-restart): a newer failover of a
vertex removes it from an older restart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.engine.machines.execution.execution_graph import ExecutionVertex

TIMER_PREFIX = "restart-"


@dataclass(slots=True, eq=False)
class Restart:
    """`versions`: of each vertex when the restart was decided. `alive`: vertices that have not ended yet."""

    timer: str
    vertices: dict[int, ExecutionVertex]
    versions: dict[int, int]
    alive: set[int]
    is_global: bool
    is_due: bool = False

    @property
    def valid(self) -> list[ExecutionVertex]:
        """The vertices that no newer failover has taken over, in topological order."""
        return [
            vertex
            for index, vertex in sorted(self.vertices.items())
            if vertex.version == self.versions[index]
        ]


class Restarts:
    """All restarts that have been decided and not carried out. `next_number`: of the next one."""

    def __init__(self, next_number: int = 0) -> None:
        self._restarts: dict[str, Restart] = {}
        self._waiting: set[int] = set()
        self.next_number = next_number

    @property
    def is_any_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def global_one(self) -> Restart | None:
        """The pending restart of the whole job. There is at most one, because it takes over all others."""
        return next((r for r in self._restarts.values() if r.is_global and r.valid), None)

    def add(self, vertices: Iterable[ExecutionVertex], *, is_global: bool) -> Restart:
        """Decide a restart. It raises the versions of its vertices, so that older restarts lose them."""
        members = {vertex.index: vertex for vertex in vertices}
        for vertex in members.values():
            vertex.version += 1
        for older in self._restarts.values():
            older.alive.difference_update(members)
        restart = Restart(
            timer=f"{TIMER_PREFIX}{self.next_number}",
            vertices=members,
            versions={index: vertex.version for index, vertex in members.items()},
            alive={i for i, vertex in members.items() if not vertex.state.is_terminal},
            is_global=is_global,
        )
        self.next_number += 1
        self._restarts[restart.timer] = restart
        self._waiting.update(members)
        return restart

    def on_terminal(self, vertex: ExecutionVertex) -> None:
        for restart in self._restarts.values():
            restart.alive.discard(vertex.index)

    def on_timer(self, timer: str) -> None:
        restart = self._restarts.get(timer)
        if restart is not None:
            restart.is_due = True

    def take_ready(self) -> list[Restart]:
        """Return the restarts whose time has come and whose vertices have all ended."""
        ready = [r for r in self._restarts.values() if r.is_due and not r.alive]
        for restart in ready:
            del self._restarts[restart.timer]
            self._waiting.difference_update(vertex.index for vertex in restart.valid)
        return ready

    def clear(self) -> None:
        self._restarts.clear()
        self._waiting.clear()
