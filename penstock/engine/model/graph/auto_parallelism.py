"""The number of subtasks of a vertex in a BATCH job that sets none, by the bytes that its inputs produced.

`AutoParallelism` holds the settings; `decided` and `cut` are the arithmetic. Does not know the graph. Source: Flink
AdaptiveBatchScheduler, DefaultVertexParallelismAndInputInfosDecider; differs: the number of subtasks is always that of
the formula, whatever the sizes of single subpartitions are (some subtasks may then have nothing to read).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.scheduling import AdaptiveBatchOptions, SchedulingOptions

UNDECIDED: Final = -1
"""A parallelism that is decided when the inputs are there."""

SubpartitionRange: TypeAlias = "tuple[int, int]"
"""The first of consecutive subpartitions, and the one after the last."""


@dataclass(frozen=True, slots=True)
class AutoParallelism:
    """`bytes_per_subtask`: what one subtask should read. `source_parallelism`: of sources that set none."""

    min_parallelism: int
    max_parallelism: int
    bytes_per_subtask: int
    source_parallelism: int


def auto_parallelism_of(settings: Settings, slots: int) -> AutoParallelism | None:
    """The settings; None: every vertex that sets no parallelism has the default parallelism.

    Args: slots: how many subtasks the host runs at once. A source has this many, up to the maximum, if no option sets
    more.
    Raises: ConfigurationError.
    """
    is_set = settings.is_set(SchedulingOptions.DEFAULT_PARALLELISM)
    if is_set or not settings.get(AdaptiveBatchOptions.ENABLED):
        return None
    least = settings.get(AdaptiveBatchOptions.MIN_PARALLELISM)
    most = settings.get(AdaptiveBatchOptions.MAX_PARALLELISM)
    if least > most:
        raise ConfigurationError(
            f"option '{AdaptiveBatchOptions.MIN_PARALLELISM.key}' is {least}, more than '{AdaptiveBatchOptions.MAX_PARALLELISM.key}', which is {most}. "
            "Lower the first or raise the second."
        )
    volume = settings.get(AdaptiveBatchOptions.AVG_DATA_VOLUME_PER_TASK)
    sources = settings.get(AdaptiveBatchOptions.DEFAULT_SOURCE_PARALLELISM)
    return AutoParallelism(least, most, volume, sources or min(max(slots, 1), most))


def decided(auto: AutoParallelism, read_bytes: int, most: int) -> int:
    """The number of subtasks for this many bytes, without those of broadcasts. `most`: the vertex's own maximum."""
    wanted = -(-read_bytes // auto.bytes_per_subtask)
    return min(max(wanted, auto.min_parallelism), auto.max_parallelism, most)


def cut(sizes: Sequence[int], count: int) -> tuple[SubpartitionRange, ...]:
    """Cuts the subpartitions into `count` non-empty ranges so that the largest range has as few bytes as possible.

    Args: sizes: bytes of each subpartition; at least `count` of them.
    """
    low, high = max(sizes), sum(sizes)
    while low < high:
        limit = (low + high) // 2
        if len(_packed(sizes, limit)) <= count:
            high = limit
        else:
            low = limit + 1
    starts = _packed(sizes, low)
    while len(starts) < count:
        starts = _split_widest(starts, len(sizes))
    return tuple(pairwise([*starts, len(sizes)]))


def _packed(sizes: Sequence[int], limit: int) -> list[int]:
    """The starts of ranges of at most `limit` bytes each, as few as possible."""
    starts, held = [0], 0
    for place, size in enumerate(sizes):
        if held + size > limit and place > starts[-1]:
            starts.append(place)
            held = 0
        held += size
    return starts


def _split_widest(starts: list[int], stop: int) -> list[int]:
    """Splits the range with the most subpartitions in two, so that no subtask is without one."""
    widths = [end - start for start, end in pairwise([*starts, stop])]
    place = widths.index(max(widths))
    return [*starts[: place + 1], starts[place] + widths[place] // 2, *starts[place + 1 :]]
