"""Redistribution of operator state (list and broadcast state) to another number of subtasks. Pure.

A partition is one element of a list state, or one entry of a broadcast state's copy; it is named by
the old subtask and its index there. Knows no file. Source: Flink
RoundRobinOperatorStateRepartitioner (docs/spec/state.md#operator-state).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from penstock.model.checkpoints import RedistributionMode
from penstock.model.errors import ConfigurationError

Parts: TypeAlias = dict[int, list[int]]
"""Old subtask -> indices of its partitions, in order."""
Mode: TypeAlias = RedistributionMode
"""How a state is redistributed: evenly, all of it to every subtask, or one of the equal copies to each."""


@dataclass(frozen=True, slots=True)
class OperatorStateShape:
    """`partition_counts`: of each old subtask; 0: it reported none (for example because it had finished)."""

    mode: Mode
    partition_counts: tuple[int, ...]


def redistribute(
    states: Mapping[str, OperatorStateShape], new_parallelism: int
) -> list[dict[str, Parts]]:
    """Return what each new subtask restores, by state name. States of which it gets nothing are
    left out.

    With the same parallelism, lists stay where they are, even if they are uneven. Raises:
    ConfigurationError: a parallelism below 1.
    """
    if new_parallelism < 1:
        raise ConfigurationError(f"parallelism must be at least 1, got {new_parallelism}")
    result: list[dict[str, Parts]] = [{} for _ in range(new_parallelism)]
    start = 0
    for name, shape in states.items():
        counts = shape.partition_counts
        is_unchanged = len(counts) == new_parallelism
        if shape.mode is Mode.UNION:
            shares = [_all_of(counts) for _ in result]
        elif shape.mode is Mode.BROADCAST:
            shares = _copies(counts, new_parallelism)
        elif is_unchanged:
            shares = [_of(old, counts) for old in range(new_parallelism)]
        else:
            shares, start = _split(counts, new_parallelism, start)
        for subtask, share in enumerate(shares):
            if share:
                result[subtask][name] = share
    return result


def _of(old: int, counts: Sequence[int]) -> Parts:
    return {old: list(range(counts[old]))} if counts[old] else {}


def _all_of(counts: Sequence[int]) -> Parts:
    return {old: list(range(count)) for old, count in enumerate(counts) if count}


def _copies(counts: Sequence[int], new_parallelism: int) -> list[Parts]:
    """Give each subtask its own copy if all have one, else one of the reported copies, in turn."""
    reported = [old for old, count in enumerate(counts) if count]
    if not reported:
        return [{} for _ in range(new_parallelism)]
    return [_of(reported[new % len(reported)], counts) for new in range(new_parallelism)]


def _split(counts: Sequence[int], new_parallelism: int, start: int) -> tuple[list[Parts], int]:
    """Split consecutive partitions over the subtasks, from `start` on. Returns also: the start for the next state."""
    partitions = [(old, index) for old, count in enumerate(counts) for index in range(count)]
    base, rest = divmod(len(partitions), new_parallelism)
    shares: list[Parts] = [{} for _ in range(new_parallelism)]
    position = 0
    for turn in range(new_parallelism):
        size = base + (turn < rest)
        share = shares[(start + turn) % new_parallelism]
        for old, index in partitions[position : position + size]:
            share.setdefault(old, []).append(index)
        position += size
    return shares, (start + rest) % new_parallelism
