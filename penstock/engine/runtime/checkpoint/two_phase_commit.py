"""Bookkeeping of exactly-once output: which committables are pending, and when they are committed. Does no I/O.

`CommitterState` holds what writers prepared, and commits it checkpoint by checkpoint. It does not know files, clocks or operators.
Commits must be idempotent, because a restore repeats them.
Source: Flink CommittableCollector, CommitterOperator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.engine.model.errors import EngineBug
from penstock.engine.runtime.interruption import uninterruptible

RETRY_AFTER_MS: Final = 1000

Commit: TypeAlias = Callable[[Sequence[object]], "Sequence[object] | None"]
"""Makes these visible. Returns those to try again later, or None."""


@dataclass(slots=True)
class CommitFigures:
    """How many committables there were. `retried`: tries that put one off. `failed`: those of a commit that raised."""

    total: int = 0
    successful: int = 0
    retried: int = 0
    failed: int = 0

    def counted(self, commit: Commit, waiting: Sequence[object]) -> Sequence[object] | None:
        """Commit, and count what became of it. Returns and raises as `commit`."""
        try:
            put_off = commit(waiting)
        except Exception:
            self.failed += len(waiting)
            raise
        self.successful += len(waiting) - len(put_off or ())
        self.retried += len(put_off or ())
        return put_off


class CommitterState:
    """The committables of one subtask by checkpoint.

    Committables that could not be committed yet are due again after `RETRY_AFTER_MS`. They do not hold up later checkpoints.
    """

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._waiting: dict[int, list[object]] = {}
        self._expected: dict[int, int] = {}
        self._completed = -1
        self.figures = CommitFigures()

    @property
    def retry_after_ms(self) -> int | None:
        """In how many ms to call `retry`; None: nothing is put off."""
        is_put_off = any(one <= self._completed for one in self._waiting)
        return RETRY_AFTER_MS if is_put_off else None

    def add(self, checkpoint_id: int, committables: Sequence[object]) -> None:
        """Add what a writer prepared for a checkpoint."""
        if committables:
            self.figures.total += len(committables)
            self._waiting.setdefault(checkpoint_id, []).extend(committables)

    def expect(self, checkpoint_id: int, count: int) -> None:
        """Note how many committables one writer announced for this checkpoint."""
        self._expected[checkpoint_id] = self._expected.get(checkpoint_id, 0) + count

    def complete(self, checkpoint_id: int) -> list[int]:
        """Commit everything up to this checkpoint, oldest first. Returns the checkpoints whose output is now all visible.

        Raises: EngineBug when committables are missing; what `commit` raises.
        """
        self._completed = max(self._completed, checkpoint_id)
        due = sorted(one for one in self._waiting.keys() | self._expected if one <= checkpoint_id)
        for one in due:
            self._check_count(one)
        return [one for one in due if one in self._waiting and self._try(one)]

    def retry(self) -> list[int]:
        """Try again to commit what was put off. As `complete`."""
        return self.complete(self._completed)

    def pending(self) -> list[tuple[int, object]]:
        """(checkpoint, committable) of everything that is not committed, oldest first."""
        return [(one, kept) for one in sorted(self._waiting) for kept in self._waiting[one]]

    @property
    def pending_count(self) -> int:
        """How many are not committed. Any thread."""
        return sum(map(len, list(self._waiting.values())))

    def take(self) -> list[object]:
        """Remove and return everything that is not committed, oldest first: somebody else commits it."""
        taken = [committable for _, committable in self.pending()]
        self._waiting.clear()
        self._expected.clear()
        return taken

    def _check_count(self, checkpoint_id: int) -> None:
        expected = self._expected.pop(checkpoint_id, None)
        found = len(self._waiting.get(checkpoint_id, ()))
        if expected is not None and found != expected:
            raise EngineBug(
                f"checkpoint {checkpoint_id} has {found} committables, but its writers announced "
                f"{expected}"
            )

    def _try(self, checkpoint_id: int) -> bool:
        # After an interrupt while a connection closes, its transaction and its locks would stay.
        with uninterruptible():
            put_off = self.figures.counted(self._commit, self._waiting[checkpoint_id])
        if put_off:
            self._waiting[checkpoint_id] = list(put_off)
            return False
        del self._waiting[checkpoint_id]
        return True
