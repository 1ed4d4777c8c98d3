"""Invariants of unfinished checkpoints, checked after each step in tests. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.machines.checkpoints.pending import PendingCheckpoint, Phase
from penstock.model.errors import BrokenInvariant


def check_pending(
    pending: Mapping[int, PendingCheckpoint], next_id: int, *, is_active: bool
) -> None:
    """Raises BrokenInvariant with the name of the check."""
    ids = list(pending)
    _expect("ids rise", ids == sorted(ids) and all(i < next_id for i in ids), ids)
    storing = [p.checkpoint_id for p in pending.values() if p.phase is Phase.STORING]
    _expect("one checkpoint is written at a time", len(storing) <= 1, storing)
    idle = [p.checkpoint_id for p in pending.values() if p.phase is Phase.READY]
    _expect("a whole checkpoint waits for another one only", storing or not idle, idle)
    for checkpoint in pending.values():
        is_whole = checkpoint.states.keys() == checkpoint.plan.running.keys()
        is_known = checkpoint.states.keys() <= checkpoint.plan.running.keys()
        _expect(
            "what is written was acknowledged by all, each once",
            is_known and is_whole != checkpoint.is_under_way,
            checkpoint.checkpoint_id,
        )
        is_kept = is_active or checkpoint.phase is Phase.STORING
        _expect("only a running job takes checkpoints", is_kept, checkpoint.checkpoint_id)


def _expect(name: str, holds: object, what: object) -> None:
    if not holds:
        raise BrokenInvariant(f"'{name}' does not hold for checkpoint {what}.")
