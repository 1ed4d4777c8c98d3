"""IncrementalCleanup: drops expired values of a heap state step by step. Knows the tables, but not the kinds of state.

Source: Flink TtlIncrementalCleanup; differs: a round covers the keys of its start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from penstock.engine.runtime.state.descriptors import StateTtlConfig


class ExpiringState(Protocol):
    """Tables with values that may have expired: namespace -> state key -> value."""

    tables: dict[Any, dict[Any, Any]]

    def drop_expired(self, namespace: Any, skey: Any) -> None: ...


class IncrementalCleanup:
    """Checks a few values whenever the state is used. A round covers the keys that exist at its start."""

    def __init__(self, state: ExpiringState, size: int, *, runs_for_every_record: bool) -> None:
        self._state = state
        self._size = size
        self.runs_for_every_record = runs_for_every_record
        self._round: Iterator[tuple[Any, Any]] = iter(())

    def run(self, times: int) -> None:
        """`times`: how often the state was used, or how many records were processed."""
        for _ in range(times * self._size):
            place = next(self._round, None)
            if place is None:
                noted = [
                    (namespace, list(table)) for namespace, table in self._state.tables.items()
                ]
                self._round = ((namespace, skey) for namespace, keys in noted for skey in keys)
                return
            self._state.drop_expired(*place)


def cleanup_of(state: ExpiringState, ttl: StateTtlConfig) -> IncrementalCleanup | None:
    """The clean-up for the strategies that a heap supports. RocksDB's compaction filter is accepted without effect."""
    strategies = ttl.get_cleanup_strategies()
    if not strategies.is_cleanup_in_background():
        return None
    incremental = strategies.get_incremental_cleanup_strategy()
    return IncrementalCleanup(
        state,
        incremental.get_cleanup_size(),
        runs_for_every_record=incremental.run_cleanup_for_every_record(),
    )
