"""A job as a model: subtasks with service rates, bounded queues between vertices, and records that wait before the source.

Time goes in steps. In a step each vertex takes what waits before it, at most what its slowest subtask allows and what the queues behind it
have room for. Knows nothing of the autoscaler but the form of its samples.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.engine.model.ids import DataSetId, VertexId
from penstock.ops.autoscaler.rules.samples import Topology, VertexSample
from penstock.ops.jobs.snapshots import InputFacts, VertexFacts

KEY_GROUPS: Final = 128
_QUEUE_STEPS: Final = 1.5
"""A queue holds so many steps of what its vertex can do."""


@dataclass(frozen=True, slots=True)
class ModelVertex:
    """Attributes:
    rate: records per second of one subtask.
    outputs: records that it sends for each that it takes.
    partitions: of a source. None: it is none, or they are as many as anyone wants.
    is_keyed: its records come by key, in 128 key groups.
    hot_share: share of all records that have one key.
    lost_an_hour: share of its rate that a subtask loses in each hour, as state grows.
    """

    name: str
    rate: float
    outputs: float = 1.0
    inputs: tuple[str, ...] = ()
    partitions: int | None = None
    is_keyed: bool = False
    hot_share: float = 0.0
    lost_an_hour: float = 0.0

    def largest_share(self, parallelism: int) -> float:
        """Return the share of all records that the busiest subtask takes."""
        pieces = self.partitions or (KEY_GROUPS if self.is_keyed else None)
        even = -(-pieces // parallelism) / pieces if pieces else 1 / parallelism
        return max(even, self.hot_share)

    def capacity(self, parallelism: int, time_s: float) -> float:
        """Return the records per second of all subtasks, when the busiest one is busy all the time."""
        left = math.pow(1 - self.lost_an_hour, time_s / 3600)
        return self.rate * left / self.largest_share(parallelism)


@dataclass(slots=True)
class _State:
    """Of one vertex. Sums since the last measurement: `busy_s`, `blocked_s`, `taken`, `sent`."""

    waiting: float = 0.0
    busy_s: float = 0.0
    blocked_s: float = 0.0
    taken: float = 0.0
    sent: float = 0.0


class ModelJob:
    """The vertices are given in topological order. Sources have no `inputs`; each gets the whole load."""

    def __init__(self, vertices: Sequence[ModelVertex], parallelism: Mapping[str, int]) -> None:
        self.vertices = {vertex.name: vertex for vertex in vertices}
        self.parallelism = dict(parallelism)
        self._states = {name: _State() for name in self.vertices}
        self._backwards = tuple(reversed(self.vertices))
        self._behind: dict[str, list[str]] = {name: [] for name in self.vertices}
        for vertex in vertices:
            for one in vertex.inputs:
                self._behind[one].append(vertex.name)

    def topology(self) -> Topology:
        """Each vertex has a slot sharing group of its own, so every subtask is a slot."""
        return Topology(
            VertexFacts(
                VertexId(name),
                name,
                self.parallelism[name],
                KEY_GROUPS,
                name,
                (),
                tuple(
                    InputFacts(
                        VertexId(one), "HASH" if vertex.is_keyed else "FORWARD", "", DataSetId(one)
                    )
                    for one in vertex.inputs
                ),
            )
            for name, vertex in self.vertices.items()
        )

    @property
    def slots(self) -> int:
        return sum(self.parallelism.values())

    @property
    def lag(self) -> float:
        """Records that wait before the source where most wait."""
        return max(self._states[n].waiting for n, v in self.vertices.items() if not v.inputs)

    def step(self, time_s: float, step_s: float, load: float, *, is_running: bool = True) -> None:
        """Let `load` records a second arrive for `step_s` seconds, and work on what waits."""
        for name, vertex in self.vertices.items():
            if not vertex.inputs:
                self._states[name].waiting += load * step_s
        if not is_running:
            return
        most = {
            name: vertex.capacity(self.parallelism[name], time_s) * step_s
            for name, vertex in self.vertices.items()
        }
        for name in self._backwards:
            state, sends = self._states[name], self.vertices[name].outputs
            wanted = min(state.waiting, most[name])
            done = wanted
            for behind in self._behind[name]:
                room = _QUEUE_STEPS * most[behind] - self._states[behind].waiting
                done = min(done, max(0.0, room) / sends) if sends else done
            state.waiting -= done
            for behind in self._behind[name]:
                self._states[behind].waiting += done * sends
            state.taken += done
            state.sent += done * sends
            state.busy_s += step_s * done / most[name]
            state.blocked_s += step_s * (wanted - done) / most[name]

    def measure(
        self, over_s: float, noise: random.Random, spread: float
    ) -> dict[VertexId, VertexSample]:
        """Return what was measured in the last `over_s` seconds, and begin anew. `spread`: of the noise, as a share."""
        samples = {}
        for name, vertex in self.vertices.items():
            state, count = self._states[name], self.parallelism[name]
            busy = state.busy_s / over_s * 1000 * noise.gauss(1.0, spread)
            is_source = not vertex.inputs
            samples[VertexId(name)] = VertexSample(
                parallelism=count,
                busy_ms_max=min(1000.0, busy),
                busy_ms_min=min(1000.0, busy / vertex.largest_share(count) / count),
                back_pressured_ms=min(1000.0, state.blocked_s / over_s * 1000),
                records_in_per_second=state.taken / over_s,
                records_out_per_second=state.sent / over_s,
                pending_records=state.waiting if is_source else None,
                partitions=vertex.partitions,
            )
            self._states[name] = replace(_State(), waiting=state.waiting)
        return samples

    def rescale(self, parallelism: Mapping[str, int]) -> None:
        self.parallelism.update(parallelism)
