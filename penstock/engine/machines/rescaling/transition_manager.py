"""When a change of slots or requirements becomes a change of the job: waits, gathers changes, and says "now".

A master owns one manager for each of its states WaitingForResources and Executing, and drops it with the state. The
manager knows no slot: each call says whether what there is suffices. It sets no timer itself: after each
call the owner has it woken at `wakes_at_ms`. A late or superfluous wake-up changes nothing. Source: Flink
DefaultStateTransitionManager (docs/spec/elasticity.md#phases, #checkpoints-as-triggers); differs: with
`waits_only_for_coming` nothing is waited for if nobody is on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

TRANSITION_TIMER: Final = "adaptive-transition"
"""The name of the owner's timer for `wakes_at_ms`."""


class Phase(StrEnum):
    """Where a manager is; docs/spec/elasticity.md#phases has the table."""

    COOLDOWN = "Cooldown"
    IDLING = "Idling"
    STABILIZING = "Stabilizing"
    STABILIZED = "Stabilized"
    TRANSITIONING = "Transitioning"


class Trigger(StrEnum):
    """What a manager takes."""

    CHANGE = "change"
    TRIGGER = "trigger"
    PHASE_TIMED_OUT = "the phase timed out"


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
        self.phase = Phase.COOLDOWN
        self._since_ms: int | None = None
        self._ends_at_ms: int | None = now_ms + timings.cooldown_ms
        self._evaluates_at_ms: int | None = None

    @property
    def wakes_at_ms(self) -> int | None:
        """When `on_timer` is due, maybe in the past; None: only a change can do something."""
        due = [at for at in (self._ends_at_ms, self._evaluates_at_ms) if at is not None]
        return min(due, default=None)

    def on_change(self, now_ms: int, prospect: Prospect) -> bool:
        """Slots or requirements have changed, or the owner has just entered its state."""
        return self._fire(Trigger.CHANGE, now_ms, prospect)

    def on_trigger(self, now_ms: int, prospect: Prospect) -> bool:
        """A good moment: after a checkpoint little has to be repeated."""
        return self._fire(Trigger.TRIGGER, now_ms, prospect)

    def on_timer(self, now_ms: int, prospect: Prospect) -> bool:
        """Do all that is due. Too early: nothing."""
        while (at_ms := self.wakes_at_ms) is not None and at_ms <= now_ms:
            trigger = Trigger.PHASE_TIMED_OUT if at_ms == self._ends_at_ms else Trigger.TRIGGER
            if trigger is Trigger.TRIGGER:
                self._evaluates_at_ms = None
            if self._fire(trigger, now_ms, prospect):
                return True
        return False

    def _fire(self, trigger: Trigger, now_ms: int, prospect: Prospect) -> bool:
        action = self.TABLE.get((self.phase, trigger))
        return action is not None and action(self, now_ms, prospect)

    def _remember(self, now_ms: int, prospect: Prospect) -> bool:
        if prospect.is_sufficient and self._since_ms is None:
            self._since_ms = now_ms
        return False

    def _stabilize_if_sufficient(self, now_ms: int, prospect: Prospect) -> bool:
        return prospect.is_sufficient and self._stabilize(now_ms, now_ms, prospect)

    def _evaluate_later(self, now_ms: int, prospect: Prospect) -> bool:
        if self._evaluates_at_ms is None:
            self._evaluates_at_ms = now_ms + self._timings.max_trigger_delay_ms
        return self._hurry(now_ms, prospect)

    def _go_if_desired(self, _now_ms: int, prospect: Prospect) -> bool:
        return prospect.is_desired and self._go()

    def _go_or_idle(self, _now_ms: int, prospect: Prospect) -> bool:
        return self._go() if prospect.is_sufficient else self._idle()

    def _end_cooldown(self, now_ms: int, prospect: Prospect) -> bool:
        if self._since_ms is None:
            return self._idle()
        return self._stabilize(now_ms, self._since_ms, prospect)

    def _end_stabilization(self, _now_ms: int, _prospect: Prospect) -> bool:
        assert self._since_ms is not None, "stabilization has begun"
        self._enter(Phase.STABILIZED, self._since_ms + self._timings.max_trigger_delay_ms)
        return False

    def _stabilize(self, now_ms: int, since_ms: int, prospect: Prospect) -> bool:
        self._enter(Phase.STABILIZING, since_ms + self._timings.stabilization_ms)
        self._since_ms = since_ms
        self._evaluates_at_ms = since_ms + self._timings.max_trigger_delay_ms
        return self._hurry(now_ms, prospect)

    def _hurry(self, now_ms: int, prospect: Prospect) -> bool:
        """End stabilization now if nothing is left to wait for."""
        if self._timings.waits_only_for_coming and not prospect.is_more_coming:
            assert self._ends_at_ms is not None
            self._ends_at_ms = min(self._ends_at_ms, now_ms)
        return False

    def _idle(self) -> bool:
        self._enter(Phase.IDLING, None)
        self._since_ms = None
        return False

    def _go(self) -> bool:
        self._enter(Phase.TRANSITIONING, None)
        return True

    def _enter(self, phase: Phase, ends_at_ms: int | None) -> None:
        """Timers of the former phase are gone with it."""
        self.phase, self._ends_at_ms, self._evaluates_at_ms = phase, ends_at_ms, None

    TABLE: ClassVar[
        Mapping[tuple[Phase, Trigger], Callable[[TransitionManager, int, Prospect], bool]]
    ] = {
        (Phase.COOLDOWN, Trigger.CHANGE): _remember,
        (Phase.COOLDOWN, Trigger.PHASE_TIMED_OUT): _end_cooldown,
        (Phase.IDLING, Trigger.CHANGE): _stabilize_if_sufficient,
        (Phase.STABILIZING, Trigger.CHANGE): _evaluate_later,
        (Phase.STABILIZING, Trigger.TRIGGER): _go_if_desired,
        (Phase.STABILIZING, Trigger.PHASE_TIMED_OUT): _end_stabilization,
        (Phase.STABILIZED, Trigger.TRIGGER): _go_or_idle,
        (Phase.STABILIZED, Trigger.PHASE_TIMED_OUT): _go_or_idle,
    }
    """What is done, by the phase and the trigger. A pair that is missing changes nothing."""
