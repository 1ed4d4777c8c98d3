"""The job of docs/spec/autoscaler.md#example, and what an autoscaler is told of it."""

from penstock.engine.model.config import Settings
from penstock.engine.model.ids import VertexId
from penstock.ops.autoscaler.rules.autoscaler import Autoscaler
from penstock.ops.autoscaler.rules.samples import (
    ClusterRoom,
    DecisionWanted,
    JobMeasured,
    JobRescaled,
    JobRestarted,
    MemorySample,
    RescaleRefused,
    Topology,
    VertexSample,
)
from penstock.ops.autoscaler.rules.settings import AutoscalerSettings, autoscaler_settings_of
from tests.tools.machines.topologies import topology_of

SOURCE, MAP, SINK = VertexId("source"), VertexId("map"), VertexId("sink")
MINUTE, HOUR = 60_000, 3_600_000
FLINK = {"penstock.elastic.profile": "flink", "job.autoscaler.metrics.window": "5 min"}
"""Flink's defaults, but for the window: with 15 min the lag of the example would have begun below 0."""
FULL = 10 * MINUTE
"""Flink's stabilization of 5 min, and the window."""
LAG, LAG_GROWTH = 900_000, 2_000


def settings_of(**options) -> AutoscalerSettings:
    """Keys with `_` for `.` and `__` for `-` after `job.autoscaler.`; the others are Flink's."""
    keys = {
        "job.autoscaler." + key.replace("__", "-").replace("_", "."): value
        for key, value in options.items()
    }
    return autoscaler_settings_of(Settings({**FLINK, **keys}))


def topology(max_parallelism: int = 128) -> Topology:
    edges = [(SOURCE, MAP, True), (MAP, SINK)]
    return topology_of((SOURCE, MAP, SINK), edges, max_parallelism)


def example(lag: float = LAG) -> dict[VertexId, VertexSample]:
    """One measurement."""
    return {
        SOURCE: VertexSample(
            4,
            busy_ms_max=950,
            records_in_per_second=8_000,
            records_out_per_second=12_000,
            pending_records=lag,
            partitions=20,
        ),
        MAP: VertexSample(
            6, busy_ms_max=620, records_in_per_second=12_000, records_out_per_second=3_000
        ),
        SINK: VertexSample(2, busy_ms_max=100, records_in_per_second=3_000),
    }


class Bench:
    """Plays the host: a job that runs since 0 and is measured once a minute."""

    def __init__(self, settings: AutoscalerSettings, shape: Topology | None = None) -> None:
        self.autoscaler = Autoscaler(settings, shape or topology())
        self.now_ms = 0
        self.autoscaler.step(JobRestarted(), 0)

    def observe_until(self, end_ms: int, samples=None, *, every_ms: int = MINUTE, memory=None):
        """Measure until a time. `samples`: the same each time, or made from the time in ms. None: of the example, with the lag growing to its value at the end."""
        while self.now_ms < end_ms:
            self.now_ms += every_ms
            found = samples
            if samples is None:
                found = example(LAG - LAG_GROWTH * (end_ms - self.now_ms) / 1000)
            elif callable(samples):
                found = samples(self.now_ms)
            measured = JobMeasured(found, memory or MemorySample())
            self.autoscaler.step(measured, self.now_ms)
        return self

    def decide(self, room=None):
        """Returns: the decision; None: there is nothing new."""
        found = self.autoscaler.step(DecisionWanted(room or ClusterRoom()), self.now_ms)
        return found[0] if found else None

    def rescaled(self, parallelism, took_ms: int, now_ms: int | None = None) -> None:
        now_ms = self.now_ms if now_ms is None else now_ms
        self.autoscaler.step(JobRescaled(parallelism, took_ms), now_ms)

    def refused(self, why: str):
        return self.autoscaler.step(RescaleRefused(why), self.now_ms)

    def decide_all_until(self, end_ms: int, samples, *, every_ms: int = MINUTE):
        """Measure and ask each time. Return the decisions."""
        found = []
        while self.now_ms < end_ms:
            self.observe_until(self.now_ms + every_ms, samples, every_ms=every_ms)
            found.append(self.decide())
        return [one for one in found if one is not None]
