"""When a change of slots or requirements becomes a change of the job: waits, gathers changes, and says "now".

A master owns one manager for each of its states WaitingForResources and Executing, and drops it with the state. The
manager knows no slot: with each call it is told whether what there is suffices. It sets no timer itself: after each
call the owner has it woken at `wakes_at_ms`. A late or superfluous wake-up changes nothing. Source: Flink
DefaultStateTransitionManager (docs/spec/elasticity.md#phases, #checkpoints-as-triggers); differs: with
`waits_only_for_coming` nothing is waited for if nobody is on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

TRANSITION_TIMER: Final = "adaptive-transition"
"""The name of the owner's timer for `wakes_at_ms`."""


class Phase(StrEnum):
    """Where a manager is; docs/spec/elasticity.md#phases has the table."""

    COOLDOWN = "Cooldown"
    IDLING = "Idling"
    STABILIZING = "Stabilizing"
    STABILIZED = "Stabilized"
    TRANSITIONING = "Transitioning"


@dataclass(frozen=True, slots=True)
class TransitionTimings:
    """All in ms. `cooldown_ms`: nothing changes so soon after the owner's entry. `stabilization_ms`: how long more
    slots are waited for once there are enough for a change. `max_trigger_delay_ms`: how long a change waits for a good moment.

    `waits_only_for_coming`: stabilization ends at once when no TaskManager that was asked for is on its way.
    """

    cooldown_ms: int = 0
    stabilization_ms: int = 0
    max_trigger_delay_ms: int = 0
    waits_only_for_coming: bool = False


@dataclass(frozen=True, slots=True)
class Prospect:
    """What the owner would gain now. `is_sufficient`: the job can run, and while it runs, some vertex would change.

    `is_desired`: there is all that is declared, and as above. `is_more_coming`: TaskManagers are on their way.
    """

    is_sufficient: bool
    is_desired: bool
    is_more_coming: bool = True


class TransitionManager:
    """`on_change`, `on_trigger` and `on_timer` return True once: when the owner has to change its state, now."""

    def __init__(self, timings: TransitionTimings, now_ms: int) -> None:
        """`now_ms`: of the owner's entry into its state."""
        self._timings = timings
        self._phase = Phase.COOLDOWN
        self._since_ms: int | None = None
        self._ends_at_ms: int | None = now_ms + timings.cooldown_ms
        self._evaluates_at_ms: int | None = None

    @property
    def phase(self) -> Phase:
        return self._phase

    @property
    def wakes_at_ms(self) -> int | None:
        """When `on_timer` is due, maybe in the past; None: only a change can do something."""
        due = [at for at in (self._ends_at_ms, self._evaluates_at_ms) if at is not None]
        return min(due, default=None)

    def on_change(self, now_ms: int, prospect: Prospect) -> bool:
        """Slots or requirements have changed, or the owner has just entered its state."""
        if self._phase is Phase.COOLDOWN:
            if prospect.is_sufficient and self._since_ms is None:
                self._since_ms = now_ms
        elif self._phase is Phase.IDLING:
            if prospect.is_sufficient:
                self._stabilize(now_ms, now_ms, prospect)
        elif self._phase is Phase.STABILIZING:
            if self._evaluates_at_ms is None:
                self._evaluates_at_ms = now_ms + self._timings.max_trigger_delay_ms
            self._hurry(now_ms, prospect)
        return False

    def on_trigger(self, now_ms: int, prospect: Prospect) -> bool:
        """A good moment: after a checkpoint little has to be repeated."""
        if self._phase is Phase.STABILIZING and prospect.is_desired:
            return self._go()
        if self._phase is Phase.STABILIZED:
            return self._go() if prospect.is_sufficient else self._idle()
        return False

    def on_timer(self, now_ms: int, prospect: Prospect) -> bool:
        """Do all that is due. Too early: nothing."""
        while (at_ms := self.wakes_at_ms) is not None and at_ms <= now_ms:
            if at_ms == self._ends_at_ms:
                if self._end_phase(now_ms, prospect):
                    return True
            else:
                self._evaluates_at_ms = None
                if self.on_trigger(now_ms, prospect):
                    return True
        return False

    def _end_phase(self, now_ms: int, prospect: Prospect) -> bool:
        if self._phase is Phase.STABILIZED:
            return self.on_trigger(now_ms, prospect)
        if self._since_ms is None:
            return self._idle()
        if self._phase is Phase.COOLDOWN:
            self._stabilize(now_ms, self._since_ms, prospect)
        else:
            self._enter(Phase.STABILIZED, self._since_ms + self._timings.max_trigger_delay_ms)
        return False

    def _stabilize(self, now_ms: int, since_ms: int, prospect: Prospect) -> None:
        self._enter(Phase.STABILIZING, since_ms + self._timings.stabilization_ms)
        self._since_ms = since_ms
        self._evaluates_at_ms = since_ms + self._timings.max_trigger_delay_ms
        self._hurry(now_ms, prospect)

    def _hurry(self, now_ms: int, prospect: Prospect) -> None:
        """End stabilization now if nothing is left to wait for."""
        if self._timings.waits_only_for_coming and not prospect.is_more_coming:
            assert self._ends_at_ms is not None
            self._ends_at_ms = min(self._ends_at_ms, now_ms)

    def _idle(self) -> bool:
        self._enter(Phase.IDLING, None)
        self._since_ms = None
        return False

    def _go(self) -> bool:
        self._enter(Phase.TRANSITIONING, None)
        return True

    def _enter(self, phase: Phase, ends_at_ms: int | None) -> None:
        """Timers of the former phase are gone with it."""
        self._phase, self._ends_at_ms, self._evaluates_at_ms = phase, ends_at_ms, None
