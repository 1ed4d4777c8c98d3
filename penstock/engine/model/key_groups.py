"""Key groups: the units in which keyed state is assigned to subtasks, and their owners.

Does not know keys: `engine/runtime/keys` assigns keys to groups. Source: Flink KeyGroupRangeAssignment,
StateAssignmentOperation (docs/spec/state.md#key-groups, #rescaling-keyed-state).
"""

from __future__ import annotations

from typing import Final

from penstock.engine.model.errors import ConfigurationError

MAX_PARALLELISM_LIMIT: Final = 32768


def default_max_parallelism(parallelism: int) -> int:
    """1.5 times the parallelism, rounded up to a power of two, within 128..32768."""
    wanted = parallelism + parallelism // 2
    return min(max(1 << max(wanted - 1, 0).bit_length(), 128), MAX_PARALLELISM_LIMIT)


def key_group_range(max_parallelism: int, parallelism: int, index: int) -> tuple[int, int]:
    """The first and last key group (inclusive) of a subtask.

    Raises: ConfigurationError: parallelism outside [1, max_parallelism], or max_parallelism above 32768.
    """
    check_parallelism(max_parallelism, parallelism)
    start = (index * max_parallelism + parallelism - 1) // parallelism
    return start, ((index + 1) * max_parallelism - 1) // parallelism


def check_parallelism(max_parallelism: int, parallelism: int) -> None:
    """Raises ConfigurationError unless 1 <= parallelism <= max_parallelism <= 32768."""
    if not 1 <= parallelism <= max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise ConfigurationError(
            f"parallelism {parallelism} with max parallelism {max_parallelism}: expected 1 <= "
            f"parallelism <= max parallelism <= {MAX_PARALLELISM_LIMIT}. Change one of them with "
            "set_parallelism or set_max_parallelism"
        )


def operator_index(key_group: int, max_parallelism: int, parallelism: int) -> int:
    """The subtask, and so the channel, that owns a key group."""
    return key_group * parallelism // max_parallelism


def restore_sources(
    max_parallelism: int, old_parallelism: int, new_parallelism: int, index: int
) -> list[tuple[int, tuple[int, int]]]:
    """The sources of a new subtask's state: (old subtask, range of key groups) for each overlap of their ranges."""
    first, last = key_group_range(max_parallelism, new_parallelism, index)
    found = []
    for old in range(old_parallelism):
        old_first, old_last = key_group_range(max_parallelism, old_parallelism, old)
        low, high = max(first, old_first), min(last, old_last)
        if low <= high:
            found.append((old, (low, high)))
    return found
