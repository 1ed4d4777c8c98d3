"""What holds changes up as a whole: memory, excluded periods, the room of the cluster, quotas.

Pure. Source: ScalingExecutor, ResourceCheck of Flink's Kubernetes operator (docs/spec/autoscaler.md#gates).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from penstock.machines.autoscaler.decisions import EventKind
from penstock.machines.autoscaler.samples import ClusterRoom, JobSample
from penstock.machines.autoscaler.settings import GateSettings
from penstock.model.options.autoscaler import AutoscalerOptions
from penstock.model.texts.amounts import counted


@dataclass(frozen=True, slots=True)
class Held:
    """Why changes are not carried out. `kind`: of the event that tells it; None: none is told."""

    why: str
    kind: EventKind | None = None


def held_by(
    now_ms: int,
    samples: Sequence[JobSample],
    slots: tuple[int, int],
    room: ClusterRoom,
    settings: GateSettings,
) -> Held | None:
    """Return what holds changes up; None: nothing does.

    Args: slots: of the job, before and after.
    """
    return (
        _memory(samples, settings)
        or _period(now_ms, settings)
        or _switch(settings)
        or _room(slots, room)
        or _quota(slots, room, settings)
    )


def _memory(samples: Sequence[JobSample], settings: GateSettings) -> Held | None:
    kinds = (
        ("garbage collection takes", "gc_pressure", settings.gc_pressure_max),
        ("memory in use is", "heap_usage", settings.heap_usage_max),
    )
    for what, name, most in kinds:
        values = [getattr(sample.memory, name) for sample in samples]
        known = [value for value in values if value is not None]
        if known and fmean(known) > most:
            why = f"{what} {fmean(known):.0%}, above {most:.0%}"
            return Held(why, EventKind.MEMORY_PRESSURE)
    return None


def _period(now_ms: int, settings: GateSettings) -> Held | None:
    for period in settings.excluded_periods:
        if period.holds(now_ms):
            return Held(f"now is in the excluded period '{period.text}'", EventKind.EXCLUDED_PERIOD)
    return None


def _switch(settings: GateSettings) -> Held | None:
    if settings.is_scaling:
        return None
    return Held(f"'{AutoscalerOptions.SCALING_ENABLED.key}' is false")


def _room(slots: tuple[int, int], room: ClusterRoom) -> Held | None:
    before, after = slots
    if room.slots_max is None or after <= max(before, room.slots_max):
        return None
    why = f"{counted(after, 'slot')} are needed, and the cluster has {room.slots_max} for this job"
    return Held(why, EventKind.CLUSTER_FULL)


def _quota(slots: tuple[int, int], room: ClusterRoom, settings: GateSettings) -> Held | None:
    before, after = slots
    if after <= before:
        return None
    cpus = after * room.cpus_per_slot
    if settings.quota_cpu is not None and cpus > settings.quota_cpu:
        key = AutoscalerOptions.QUOTA_CPU.key
        why = f"{cpus:g} cores are needed, and '{key}' is {settings.quota_cpu:g}"
        return Held(why, EventKind.QUOTA_REACHED)
    memory = after * room.memory_per_slot
    if settings.quota_memory is not None and memory > settings.quota_memory:
        key = AutoscalerOptions.QUOTA_MEMORY.key
        why = f"{memory} bytes of memory are needed, and '{key}' is {settings.quota_memory}"
        return Held(why, EventKind.QUOTA_REACHED)
    return None
