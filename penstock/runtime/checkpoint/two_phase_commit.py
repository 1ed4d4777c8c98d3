"""Bookkeeping of exactly-once output: which committables are pending, and when they are committed. Pure.

`CommitterState`: what writers prepared, committed by checkpoint. Knows no files, clocks or operators; commits must be
idempotent, because a restore does them again.
Source: Flink CommittableCollector, CommitterOperator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from penstock.model.errors import EngineBug
from penstock.runtime.interruption import uninterruptible

RETRY_AFTER_MS: Final = 1000

Commit: TypeAlias = Callable[[Sequence[object]], "Sequence[object] | None"]
"""Make these visible; gives back those to try again later, or None."""


class CommitterState:
    """Committables of one subtask by checkpoint.

    What was tried and put off is due again after `RETRY_AFTER_MS`; it does not hold up later checkpoints.
    """

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._waiting: dict[int, list[object]] = {}
        self._expected: dict[int, int] = {}
        self._completed = -1

    @property
    def retry_after_ms(self) -> int | None:
        """When to call `retry`, from now; None: nothing is put off."""
        is_put_off = any(one <= self._completed for one in self._waiting)
        return RETRY_AFTER_MS if is_put_off else None

    def add(self, checkpoint_id: int, committables: Sequence[object]) -> None:
        """What a writer prepared for a checkpoint."""
        if committables:
            self._waiting.setdefault(checkpoint_id, []).extend(committables)

    def expect(self, checkpoint_id: int, count: int) -> None:
        """The summary of one writer: so many committables belong to this checkpoint."""
        self._expected[checkpoint_id] = self._expected.get(checkpoint_id, 0) + count

    def complete(self, checkpoint_id: int) -> list[int]:
        """Commit everything up to this checkpoint, oldest first. Returns: the checkpoints that are all visible now.

        Raises: EngineBug when committables are missing; what `commit` raises.
        """
        self._completed = max(self._completed, checkpoint_id)
        due = sorted(one for one in self._waiting.keys() | self._expected if one <= checkpoint_id)
        for one in due:
            self._check_count(one)
        return [one for one in due if one in self._waiting and self._try(one)]

    def retry(self) -> list[int]:
        """What was put off, once more. As `complete`."""
        return self.complete(self._completed)

    def pending(self) -> list[tuple[int, object]]:
        """(checkpoint, committable) of all that is not committed, oldest first."""
        return [(one, kept) for one in sorted(self._waiting) for kept in self._waiting[one]]

    def take(self) -> list[object]:
        """All that is not committed, oldest first: somebody else commits it."""
        taken = [committable for _, committable in self.pending()]
        self._waiting.clear()
        self._expected.clear()
        return taken

    def _check_count(self, checkpoint_id: int) -> None:
        expected = self._expected.pop(checkpoint_id, None)
        found = len(self._waiting.get(checkpoint_id, ()))
        if expected is not None and found != expected:
            raise EngineBug(
                f"checkpoint {checkpoint_id} has {found} committables, its writers announced {expected}"
            )

    def _try(self, checkpoint_id: int) -> bool:
        with (
            uninterruptible()
        ):  # a connection that is cut while it is closed keeps its transaction, and its locks
            put_off = self._commit(self._waiting[checkpoint_id])
        if put_off:
            self._waiting[checkpoint_id] = list(put_off)
            return False
        del self._waiting[checkpoint_id]
        return True
