"""When a pipelined partition is released: as soon as all of its users have finished with it.

Source: Flink ReleaseOnConsumptionResultPartition (docs/spec/exchange.md#result-partitions), in both of
its forms. The newer one, which this product uses, counts the producing task as a user as well.
"""

from __future__ import annotations

from penstock.model.errors import EngineBug


class ReleaseOnConsumption:
    """Counts users down. Not thread-safe: its owner calls it under its lock."""

    def __init__(self, subpartitions: int, *, is_producer_a_user: bool = True) -> None:
        """`is_producer_a_user` False: the older form, in which the last consumer releases the partition."""
        self._has_consumed = [False] * subpartitions
        self._is_producer_a_user = is_producer_a_user
        self._is_closed = False
        self._users = subpartitions + is_producer_a_user

    @property
    def is_released(self) -> bool:
        return self._users == 0

    def consumed(self, subpartition: int) -> bool:
        """A consumer has finished with its subpartition; a second call does nothing. Returns whether it was the last user.

        Raises: EngineBug: there is no such subpartition.
        """
        if not 0 <= subpartition < len(self._has_consumed):
            raise EngineBug(
                f"subpartition {subpartition} was consumed, but the partition has "
                f"{len(self._has_consumed)}"
            )
        if self._has_consumed[subpartition]:
            return False
        self._has_consumed[subpartition] = True
        return self._let_go()

    def closed_by_producer(self) -> bool:
        """The producing task has closed the partition. Returns whether it was the last user."""
        if self._is_closed or not self._is_producer_a_user:
            return False
        self._is_closed = True
        return self._let_go()

    def _let_go(self) -> bool:
        self._users -= 1
        return self._users == 0
