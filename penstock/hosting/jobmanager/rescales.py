"""Another parallelism for a running job, for users' threads. Depends on the JobManager only by a protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from penstock.hosting.jobmanager.machine_shell import MachineShell
from penstock.model.errors import ConfigurationError
from penstock.model.graph.job_graph import JobGraph
from penstock.model.graph.rescaling import parallelism_of, refusals_of
from penstock.model.ids import VertexId
from penstock.model.messages import JobEvent, RescaleJob


class Manager(Protocol):
    """What these functions need of a JobManager."""

    @property
    def shell(self) -> MachineShell: ...
    def feed_soon(self, make: Callable[[int], JobEvent]) -> None: ...


def start_rescale(manager: Manager, asked: Mapping[str, int | tuple[int, int]]) -> None:
    """Ask for another parallelism. Raises: ConfigurationError: the job cannot have it."""
    master = manager.shell.master
    submitted = master.submitted
    bounds = {
        vertex_id: (1, count)
        for vertex_id, count in parallelism_of(master.generation.job_graph).items()
    }
    for name, wanted in asked.items():
        vertex_id = _named(submitted, name)
        bounds[vertex_id] = (1, wanted) if isinstance(wanted, int) else wanted
    refusals = refusals_of(submitted, {one: upper for one, (_, upper) in bounds.items()})
    if master.generation.checkpoints.coordinator is None:
        refusals.append(
            "the job can take no checkpoint, so it would begin from nothing. Set "
            "'execution.checkpointing.interval' and 'execution.checkpointing.dir'"
        )
    if refusals:
        raise ConfigurationError(f"the job was not rescaled: {'; '.join(refusals)}.")
    found = tuple((one, lower, upper) for one, (lower, upper) in bounds.items())
    manager.feed_soon(lambda now: RescaleJob(found, now))


def _named(submitted: JobGraph, name: str) -> VertexId:
    found = [
        vertex.vertex_id
        for vertex in submitted.vertices.values()
        if name in (vertex.vertex_id, vertex.name)
    ]
    if len(found) != 1:
        names = ", ".join(f"'{vertex.name}' ({one})" for one, vertex in submitted.vertices.items())
        problem = "no vertex" if not found else f"{len(found)} vertices"
        raise ConfigurationError(
            f"the job was not rescaled: it has {problem} called {name!r}. Its vertices: {names}."
        )
    return found[0]
