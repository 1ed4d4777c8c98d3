"""Which subtasks are slow, by the times of those that have finished.

Pure functions on plain data. Knows no graph: the caller hands in the subtasks of one vertex. Source: Flink
ExecutionTimeBasedSlowTaskDetector (docs/spec/elasticity.md#slow-subtasks).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import TypeVar

from penstock.model.errors import BrokenInvariant, ConfigurationError
from penstock.model.ids import VertexId

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class SlowTaskSettings:
    """`baseline_ratio`: share of subtasks that must have finished, in [0, 1). `baseline_multiplier`: so many times as
    long as the median is slow, above 0. `lower_bound_ms`: nothing is slow before, at least 0.

    Raises: ConfigurationError: a value out of its range.
    """

    baseline_ratio: float = 0.75
    baseline_multiplier: float = 1.5
    lower_bound_ms: int = 60_000

    def __post_init__(self) -> None:
        if not 0 <= self.baseline_ratio < 1:
            raise _refusal("baseline ratio", self.baseline_ratio, "at least 0 and below 1")
        if not 0 < self.baseline_multiplier < math.inf:
            raise _refusal("baseline multiplier", self.baseline_multiplier, "above 0")
        if self.lower_bound_ms < 0:
            raise _refusal("lower bound", self.lower_bound_ms, "at least 0 ms")


@dataclass(frozen=True, slots=True)
class SpeculationSettings:
    """`vertices`: those whose subtasks may have several attempts. `most_attempts`: of a subtask at once, the first one included.
    `block_ms`: how long a node gets no new subtasks after one of its subtasks was slow; 0: it gets them.

    Raises: ConfigurationError: a value out of its range.
    """

    vertices: frozenset[VertexId] = frozenset()
    slow: SlowTaskSettings = field(default_factory=SlowTaskSettings)
    check_interval_ms: int = 1_000
    most_attempts: int = 2
    block_ms: int = 60_000

    def __post_init__(self) -> None:
        if self.check_interval_ms < 1:
            raise _refusal("check interval", self.check_interval_ms, "at least 1 ms")
        if self.most_attempts < 1:
            raise _refusal("number of attempts at once", self.most_attempts, "at least 1")
        if self.block_ms < 0:
            raise _refusal("time for which a node is blocked", self.block_ms, "at least 0 ms")


@dataclass(frozen=True, slots=True)
class ExecutionTime:
    """How long an attempt has run since its deployment. `input_bytes` None: not known, as in sources."""

    time_ms: int
    input_bytes: int | None = None

    def compared_with(self, other: ExecutionTime) -> int:
        """Above 0 if this one is slower, 0 if both are the same: by time for each byte if both know their bytes, or else by time.

        Raises: BrokenInvariant: one knows its bytes and the other does not, though they are of one vertex.
        """
        if self.input_bytes is not None and other.input_bytes is not None:
            mine = self.time_ms / max(self.input_bytes, _NEXT_TO_NOTHING)
            others = other.time_ms / max(other.input_bytes, _NEXT_TO_NOTHING)
            return (mine > others) - (mine < others)
        if self.input_bytes is not other.input_bytes and self.time_ms and other.time_ms:
            raise BrokenInvariant(
                f"slow task detection: got {self.input_bytes} and {other.input_bytes} bytes of "
                "input for two subtasks of one vertex, but expected both or none to be known. "
                "Report this error"
            )
        return self.time_ms - other.time_ms


_NEXT_TO_NOTHING = 5e-324
"""Stands for 0 bytes: the smallest number above 0."""


def find_slow(
    parallelism: int,
    finished: Sequence[ExecutionTime],
    running: Mapping[Key, ExecutionTime],
    settings: SlowTaskSettings,
) -> list[Key]:
    """The subtasks of a vertex that are slow, in the order of `running`.

    Args: finished: of subtasks whose current attempt has finished. running: attempts that are neither terminal, nor
    CANCELING, nor CREATED, by any name; the time is 0 before their deployment.
    """
    baseline = baseline_of(parallelism, finished, settings)
    if baseline is None:
        return []
    return [
        key
        for key, one in running.items()
        if one.time_ms >= settings.lower_bound_ms and one.compared_with(baseline) >= 0
    ]


def baseline_of(
    parallelism: int, finished: Sequence[ExecutionTime], settings: SlowTaskSettings
) -> ExecutionTime | None:
    """The time from which on a subtask is slow; None: too few have finished to tell."""
    if not parallelism or len(finished) / parallelism < settings.baseline_ratio:
        return None
    wanted = math.floor(parallelism * settings.baseline_ratio + 0.5)
    if wanted == 0:
        return ExecutionTime(0)
    fastest = sorted(finished, key=cmp_to_key(ExecutionTime.compared_with))[:wanted]
    median = fastest[wanted // 2]
    return ExecutionTime(
        math.floor(median.time_ms * settings.baseline_multiplier), median.input_bytes
    )


def _refusal(what: str, got: object, takes: str) -> ConfigurationError:
    return ConfigurationError(
        f"slow task detection: {what} is {got}, but it takes {takes}. Change the setting."
    )
