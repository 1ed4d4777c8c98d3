"""What parallelism a running job may have, for users' threads. Depends on the JobManager only by a protocol.

Source: Flink JobResourceRequirementsUpdateHandler, Dispatcher.updateJobResourceRequirements
(docs/spec/elasticity.md#requirements); differs: what the job cannot do is refused before anything is stored.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from penstock.engine.hosting.jobmanager.machine_shell import JobParts, MachineShell
from penstock.engine.machines.generations.desired_resources import (
    refusal_of_graph,
    refusal_of_sizes,
)
from penstock.engine.machines.rescaling.requirements import check_requirements, default_requirements
from penstock.engine.model.elastic import (
    JobResourceRequirements,
    ParallelismBounds,
    requirements_to_plain,
)
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.graph.job_graph import JobGraph, JobVertex
from penstock.engine.model.graph.rescaling import refusals_of, rescaled
from penstock.engine.model.ids import VertexId
from penstock.engine.model.messages import JobEvent, RescaleJob


class Manager(Protocol):
    """What these functions need of a JobManager."""

    parts: JobParts

    @property
    def shell(self) -> MachineShell: ...
    def feed_soon(self, make: Callable[[int], JobEvent]) -> None: ...


class RequirementsRefused(ConfigurationError):
    """The job cannot have this parallelism. The text has a line for each reason."""


class UpdateUnderWay(ExternalError):
    """Somebody else changes the requirements of this job just now."""


_BUSY: Final = (
    "the requirements of the job are being changed by somebody else. Look at them, and ask again."
)


class Requirements:
    """The bounds of one job. Any thread."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._lock = threading.Lock()

    def now(self) -> JobResourceRequirements:
        """Return the bounds of all vertices: what was asked for, or else 1 up to what the vertex has."""
        master = self._manager.shell.master
        if master.desired is not None:
            return master.desired.bounds
        return default_requirements(master.submitted.vertices.values())

    def change(self, asked: Mapping[str, int | tuple[int, int] | ParallelismBounds]) -> None:
        """As `ask`, for some vertices. The bounds of the others stay. A number is the upper bound; the lower one is then as
        it is, or less.

        Raises: as `ask`.
        """
        found = {str(vertex_id): bounds for vertex_id, bounds in self.now().items()}
        submitted = self._manager.shell.master.submitted
        for name, wanted in asked.items():
            key = str(_meant(submitted, name))
            found[key] = _bounds(wanted, found[key])
        self.ask(found)

    def ask(self, asked: Mapping[str, ParallelismBounds]) -> None:
        """Ask for bounds of all vertices, by name or id. They are kept for a driver that takes the job over.

        Raises: RequirementsRefused: the job cannot have them. UpdateUnderWay. ExternalError, OSError: they could not be
        stored, so they do not apply.
        """
        if not self._lock.acquire(blocking=False):
            raise UpdateUnderWay(_BUSY)
        try:
            self._apply(self._checked(asked))
        finally:
            self._lock.release()

    def _checked(self, asked: Mapping[str, ParallelismBounds]) -> JobResourceRequirements:
        master = self._manager.shell.master
        submitted = master.submitted
        checked = check_requirements(asked, list(submitted.vertices.values()))
        refusals = list(checked.findings)
        if not refusals:
            found = checked.requirements
            uppers = {one: bounds.upper for one, bounds in found.items()}
            lowers = {one: bounds.lower for one, bounds in found.items()}
            refusals += dict.fromkeys((
                *_refusals(submitted, uppers),
                *_refusals(submitted, lowers),
            ))
            refusals += self._refusals_of_job()
        if refusals:
            raise RequirementsRefused("\n".join(refusals))
        return checked.requirements

    def _refusals_of_job(self) -> list[str]:
        master, settings = self._manager.shell.master, self._manager.parts.settings
        found = []
        if settings.job.elastic.is_reactive:
            found.append(
                "in reactive mode the job takes all slots that there are, so nothing can be asked "
                "for. Unset 'scheduler-mode'"
            )
        if master.generation.checkpoints.coordinator is None:
            found.append(
                "the job takes no checkpoints, so it would begin from nothing. Set "
                "'execution.checkpointing.interval' and 'execution.checkpointing.dir'"
            )
        sizes = refusal_of_sizes(master.submitted)
        return found if sizes is None else [*found, sizes]

    def _apply(self, found: JobResourceRequirements) -> None:
        self._manager.parts.guard.record_requirements(requirements_as_text(found))
        bounds = tuple((one, each.lower, each.upper) for one, each in found.items())
        self._manager.feed_soon(lambda now: RescaleJob(bounds, now))


def _refusals(submitted: JobGraph, parallelism: Mapping[VertexId, int]) -> list[str]:
    found = refusals_of(submitted, parallelism)
    if not found:
        refusal = refusal_of_graph(rescaled(submitted, parallelism))
        found = [] if refusal is None else [refusal]
    return found


def _meant(submitted: JobGraph, name: str) -> VertexId:
    """Return the vertex of this id or name, or of an operator with this uid or name; else the only one in whose name it occurs.

    Raises: RequirementsRefused: there is none, or there are several.
    """
    vertices = list(submitted.vertices.values())
    rules: tuple[Callable[[JobVertex], bool], ...] = (
        lambda one: name in (one.vertex_id, one.name),
        lambda one: any(name in (operator.uid, operator.name) for operator in one.operators),
        lambda one: name in one.name,
    )
    for rule in rules:
        found = [one for one in vertices if rule(one)]
        if len(found) == 1:
            return found[0].vertex_id
        if found:
            names = ", ".join(f"'{one.name}' ({one.vertex_id})" for one in found)
            raise RequirementsRefused(f"'{name}' is one of several vertices: {names}. Use an id")
    names = ", ".join(f"'{one.name}' ({one.vertex_id})" for one in vertices)
    raise RequirementsRefused(f"there is no vertex '{name}'. The vertices are {names}")


def requirements_as_text(found: JobResourceRequirements) -> str:
    return json.dumps(requirements_to_plain(found), sort_keys=True)


def _bounds(
    wanted: int | tuple[int, int] | ParallelismBounds, former: ParallelismBounds
) -> ParallelismBounds:
    if isinstance(wanted, ParallelismBounds):
        return wanted
    if isinstance(wanted, int):
        return ParallelismBounds(min(former.lower, wanted) if wanted >= 1 else wanted, wanted)
    lower, upper = wanted
    return ParallelismBounds(lower, upper)
