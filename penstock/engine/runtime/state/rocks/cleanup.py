"""Drops expired rows step by step: a few rows are checked whenever a state is used. Source: Flink RocksDbTtlCompactFiltersManager;
differs: Python code cannot run while RocksDB compacts, so it works like the incremental strategy of the heap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.engine.runtime.state.descriptors import StateTtlConfig


class RocksCleanup:
    """A round covers the rows that exist at its start."""

    def __init__(
        self,
        family: Any,
        size: int,
        is_expired: Callable[[bytes], bool],
        *,
        runs_for_every_record: bool,
    ) -> None:
        """`size`: how many rows to check each time."""
        self._family = family
        self._size = size
        self._is_expired = is_expired
        self.runs_for_every_record = runs_for_every_record
        self._round: Any = None

    def run(self, times: int) -> None:
        """`times`: how often the state was used, or how many records were processed."""
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
        """Drop a row if it has expired. The round sees an old version, so the row is read again."""
        now = self._family.get(row)
        if now is not None and self._is_expired(now):
            del self._family[row]


def cleanup_of(
    family: Any, ttl: StateTtlConfig, is_expired: Callable[[bytes], bool]
) -> RocksCleanup | None:
    """None if the user wants no clean-up in the background."""
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
