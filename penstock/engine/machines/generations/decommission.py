"""How a job of a fixed size leaves TaskManagers that the host takes away: all its tasks move behind a checkpoint, as in a handover.

It asks for as many slots elsewhere as it has there, and runs on until they have come. Source: none; in Flink the tasks fail with
their TaskManager (docs/spec/elasticity.md#taskmanagers-that-leave).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from penstock.engine.machines.generations.preconditions import refusal_of_sizes
from penstock.engine.machines.job.handover_events import HandOver, HandoverFailureNoted, HoldSlots
from penstock.engine.machines.job.job_master import JobMaster
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages import JobEffect, SetTimer
from penstock.engine.model.states import JobStatus

DECOMMISSION_TIMER: Final = "decommission"
_RETRY_MS: Final = 10_000


class Decommission:
    """Asked after each event while TaskManagers leave."""

    def __init__(self) -> None:
        self._not_before_ms = 0

    def settle(
        self, generation: JobMaster, leaving: Collection[ResourceId], now_ms: int
    ) -> list[JobEffect]:
        """Ask for the slots that are missing, or hand over if they are there. After a failed checkpoint it is tried again later."""
        handover_view = generation.handover_view
        if generation.status.is_terminal or why_it_stays(generation) is not None:
            return []
        if handover_view.handover.keeps_others_waiting:
            return []
        effects: list[JobEffect] = []
        if handover_view.handover.has_failed:
            effects += generation.step(HandoverFailureNoted())
            self._not_before_ms = now_ms + _RETRY_MS
            effects.append(SetTimer(DECOMMISSION_TIMER, self._not_before_ms))
        used, there = handover_view.slots_used(), handover_view.slots_used(leaving)
        is_running = generation.status is JobStatus.RUNNING
        wanted = used + there if there and is_running else 0
        if wanted != handover_view.slots_wanted:
            effects += generation.step(HoldSlots(wanted, frozenset(leaving)))
        has_room = handover_view.slots_outside(leaving) >= used
        if there and has_room and handover_view.can_hand_over and now_ms >= self._not_before_ms:
            effects += generation.step(HandOver())
        return effects


def why_it_stays(generation: JobMaster) -> str | None:
    """Return why the tasks of a job do not move to other TaskManagers; None: they do."""
    if generation.checkpoints.coordinator is None:
        return "the job takes no checkpoints"
    return refusal_of_sizes(generation.job_graph)
