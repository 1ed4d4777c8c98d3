"""Drops expired rows bit by bit: a few rows are looked at whenever a state is used. Source: Flink RocksDbTtlCompactFiltersManager;
differs: Python cannot filter while RocksDB compacts, so the incremental strategy of the heap is followed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.runtime.state.descriptors import StateTtlConfig


class RocksCleanup:
    """A round goes over the rows that are there at its start."""

    def __init__(
        self,
        family: Any,
        size: int,
        is_expired: Callable[[bytes], bool],
        *,
        runs_for_every_record: bool,
    ) -> None:
        """`size`: rows looked at each time."""
        self._family = family
        self._size = size
        self._is_expired = is_expired
        self.runs_for_every_record = runs_for_every_record
        self._round: Any = None

    def run(self, times: int) -> None:
        """`times`: how often the state was used, or records passed."""
        for _ in range(times * self._size):
            if self._round is None or not self._round.valid():
                self._round = self._family.iter()
                self._round.seek_to_first()
                return
            row = self._round.key()
            if self._is_expired(self._round.value()):
                self._drop(row)
            self._round.next()

    def _drop(self, row: bytes) -> None:
        """The round sees what was; the row may have been written since."""
        now = self._family.get(row)
        if now is not None and self._is_expired(now):
            del self._family[row]


def cleanup_of(
    family: Any, ttl: StateTtlConfig, is_expired: Callable[[bytes], bool]
) -> RocksCleanup | None:
    """None where the user wants no clean-up in the background."""
    strategies = ttl.get_cleanup_strategies()
    if not strategies.is_cleanup_in_background():
        return None
    incremental = strategies.get_incremental_cleanup_strategy()
    return RocksCleanup(
        family,
        incremental.get_cleanup_size(),
        is_expired,
        runs_for_every_record=incremental.run_cleanup_for_every_record(),
    )
