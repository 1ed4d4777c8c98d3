"""A reference model: one transaction per checkpoint, for writers into systems with transactions.

No sink of Penstock's keeps transactions open between checkpoints. The cases of this area say what a sink that does would
have to do. Source: Flink TwoPhaseCommitSinkFunction.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Transactions(Protocol[T]):
    """What a system with transactions can do."""

    def begin(self) -> T: ...
    def pre_commit(self, transaction: T) -> None:
        """Flush: from now on `commit` must succeed, also in another process."""

    def commit(self, transaction: T) -> None:
        """May come again for one that is committed."""

    def abort(self, transaction: T) -> None: ...


@dataclass(frozen=True, slots=True)
class TransactionState(Generic[T]):
    """Part of a checkpoint: transactions to commit, with their checkpoints, and the one that was open."""

    pending: tuple[tuple[int, T], ...]
    open: T


class TwoPhaseCommit(Generic[T]):
    """Writes go to `open`. A transaction whose checkpoint does not complete is committed with a later one."""

    def __init__(
        self, transactions: Transactions[T], restored: Iterable[TransactionState[T]] = ()
    ) -> None:
        """`restored`: of any number of subtasks. Commits what their checkpoint covers, aborts what was open."""
        self._transactions = transactions
        self._pending: dict[int, T] = {}
        for state in restored:
            for _, transaction in state.pending:
                transactions.commit(transaction)
            transactions.abort(state.open)
        self.open = transactions.begin()

    def snapshot(self, checkpoint_id: int) -> TransactionState[T]:
        """Close the open transaction for this checkpoint, and begin the next one."""
        self._transactions.pre_commit(self.open)
        self._pending[checkpoint_id] = self.open
        self.open = self._transactions.begin()
        return TransactionState(tuple(self._pending.items()), self.open)

    def complete(self, checkpoint_id: int) -> None:
        """Commit everything up to this checkpoint, oldest first. All are tried; the first error is raised then."""
        first: Exception | None = None
        for pending in sorted(one for one in self._pending if one <= checkpoint_id):
            try:
                self._transactions.commit(self._pending.pop(pending))
            except Exception as error:  # others may be committed still
                first = first or error
        if first is not None:
            raise first

    def close(self) -> None:
        """Nobody will complete what is open. Pending ones stay: a restore commits them."""
        self._transactions.abort(self.open)
