"""How records choose a channel, and the consequences for the graph. Source: Flink StreamPartitioner."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class ShipStrategy(StrEnum):
    """The partitioner of a stream edge, by Flink's name."""

    FORWARD = "FORWARD"
    RESCALE = "RESCALE"
    REBALANCE = "REBALANCE"
    SHUFFLE = "SHUFFLE"
    BROADCAST = "BROADCAST"
    GLOBAL = "GLOBAL"
    HASH = "HASH"
    CUSTOM = "CUSTOM"

    @property
    def goes_by_content(self) -> bool:
        """Whether a record's content decides which subtask gets it."""
        return self in (ShipStrategy.HASH, ShipStrategy.CUSTOM)


class StreamExchangeMode(StrEnum):
    """Whether the reader of a stream runs together with its writer, or after it.

    PIPELINED: it reads records while they are made. BATCH: it reads them from files when all are made, again if
    necessary. UNDEFINED: PIPELINED, as Flink decides for streaming jobs. HYBRID_FULL, HYBRID_SELECTIVE: not supported
    by Penstock.
    """

    UNDEFINED = "UNDEFINED"
    PIPELINED = "PIPELINED"
    BATCH = "BATCH"
    HYBRID_FULL = "HYBRID_FULL"
    HYBRID_SELECTIVE = "HYBRID_SELECTIVE"


class DistributionPattern(StrEnum):
    """Which producers a consumer reads: a range of them, or all."""

    POINTWISE = "POINTWISE"
    ALL_TO_ALL = "ALL_TO_ALL"


def pattern_of(strategy: ShipStrategy) -> DistributionPattern:
    """The pattern: FORWARD and RESCALE are point-wise, all others all-to-all."""
    if strategy in (ShipStrategy.FORWARD, ShipStrategy.RESCALE):
        return DistributionPattern.POINTWISE
    return DistributionPattern.ALL_TO_ALL


def may_be_overtaken(strategies: Iterable[ShipStrategy]) -> bool:
    """Whether barriers may overtake data on an operator's inputs, given the strategies of all its inputs.

    One point-wise or broadcast input keeps all inputs of the operator aligned. After a change of parallelism, the
    reader of its data in flight could not be determined, or several subtasks would read the same data. Source: Flink
    StreamGraphGenerator (shouldDisableUnalignedCheckpointing).
    """
    return not any(
        strategy is ShipStrategy.BROADCAST or pattern_of(strategy) is DistributionPattern.POINTWISE
        for strategy in strategies
    )


@dataclass(frozen=True, slots=True)
class Partitioning:
    """A ship strategy with the user code that it needs.

    `key_selector` is for HASH (a `engine.runtime.keys.KeySelection`) and CUSTOM, `custom` for CUSTOM only: `(key, channels) ->
    channel`. Both are opaque here. `columns`: the columns of column batches that the consumer reads (HASH only); None:
    all.
    """

    strategy: ShipStrategy
    key_selector: object | None = None
    custom: object | None = None
    columns: tuple[str, ...] | None = None
