"""Adapter of the area barriers: events to a real handler, its actions as the cases write them."""

from collections.abc import Callable
from typing import Any

from penstock.engine.model.checkpoints import CheckpointOptions
from penstock.engine.runtime.checkpoint.barrier_handler import (
    Abort,
    Action,
    Alignment,
    BarrierTracker,
    Block,
    InitInputSnapshot,
    PersistStart,
    PersistStop,
    Prioritize,
    Resume,
    SingleBarrierHandler,
    Trigger,
)
from penstock.engine.runtime.elements import CheckpointBarrier

Given = dict[str, Any]


class _Handler:
    """One handler and the clock of its case."""

    def __init__(self, given: Given) -> None:
        self.now_ms = 0
        self.timeout_ms = given.get("aligned_timeout_ms")
        self.mode = given["mode"]
        after_finish = given.get("checkpoints_after_finish", True)
        self.handler: Any
        if self.mode == "tracker":
            self.handler = BarrierTracker(given["channels"], checkpoints_after_finish=after_finish)
            return
        alignment = Alignment(self.mode.upper())
        if alignment is Alignment.ALTERNATING and self.timeout_ms == 0:
            alignment = Alignment.UNALIGNED
        self.handler = SingleBarrierHandler(
            given["channels"], alignment, checkpoints_after_finish=after_finish
        )

    def barrier(self, event: Given, checkpoint_id: int) -> CheckpointBarrier:
        options = CheckpointOptions(
            is_exactly_once=self.mode != "tracker",
            is_unaligned=event.get("unaligned", False),
            aligned_timeout_ms=None if event.get("unaligned") else self.timeout_ms,
        )
        return CheckpointBarrier(checkpoint_id, event.get("timestamp", 0), options)

    def on_event(self, event: Given) -> list[Action]:
        if "barrier" in event:
            barrier = self.barrier(event, event["barrier"])
            is_blocking = not event.get("rpc", False)
            return self.handler.on_barrier(
                barrier, event.get("channel", 0), self.now_ms, is_blocking=is_blocking
            )
        if "announce" in event:
            barrier = self.barrier(event, event["announce"])
            return self.handler.on_announcement(barrier, event["channel"], event["seq"])
        if "cancel_marker" in event:
            return self.handler.on_cancel(event["cancel_marker"], event.get("channel", 0))
        if "end_of_partition" in event:
            channel = event.get("channel", event["end_of_partition"])
            return self.handler.on_end_of_partition(channel, self.now_ms)
        self.now_ms += event["advance_clock_ms"]
        return self.handler.on_timer(self.now_ms)


def barriers(given: Given) -> Given:
    handler = _Handler(given)
    return {"actions_per_event": [_shown(handler.on_event(event)) for event in given["events"]]}


def _shown(actions: list[Action]) -> list[Given]:
    """Consecutive resumes are one."""
    shown: list[Given] = []
    for action in actions:
        one = _words(action)
        if shown and "resume" in one and "resume" in shown[-1]:
            shown[-1] = {"resume": sorted(shown[-1]["resume"] + one["resume"])}
        else:
            shown.append(one)
    return shown


def _words(action: Action) -> Given:
    match action:
        case Block(channel):
            return {"block": channel}
        case Resume(channels):
            return {"resume": sorted(channels)}
        case Trigger(checkpoint_id, is_unaligned):
            return {"trigger": checkpoint_id, "unaligned": is_unaligned}
        case Abort(checkpoint_id, reason):
            return {"abort": checkpoint_id, "reason": str(reason)}
        case InitInputSnapshot(checkpoint_id):
            return {"init_input_snapshot": checkpoint_id}
        case PersistStart(checkpoint_id):
            return {"persist_start": checkpoint_id}
        case PersistStop(checkpoint_id):
            return {"persist_stop": checkpoint_id}
        case Prioritize(announced):
            return {"prioritize": [{"channel": c, "seq": s} for c, s in announced]}


AREAS: dict[str, Callable[..., Any]] = {"barriers": barriers}
