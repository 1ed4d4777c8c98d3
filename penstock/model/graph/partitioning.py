"""How records choose a channel, and what that means for the graph. Source: Flink StreamPartitioner."""

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
        """Whether a record itself says which subtask it is for."""
        return self in (ShipStrategy.HASH, ShipStrategy.CUSTOM)


class StreamExchangeMode(StrEnum):
    """Whether the reader of a stream works beside its writer, or after it.

    PIPELINED: while the records are made. BATCH: when all are made, from files, and again if it must. UNDEFINED:
    PIPELINED, as Flink decides for streaming jobs. HYBRID_FULL, HYBRID_SELECTIVE: either; Penstock has neither.
    """

    UNDEFINED = "UNDEFINED"
    PIPELINED = "PIPELINED"
    BATCH = "BATCH"
    HYBRID_FULL = "HYBRID_FULL"
    HYBRID_SELECTIVE = "HYBRID_SELECTIVE"


class DistributionPattern(StrEnum):
    """Who reads whom: a range of producers, or all of them."""

    POINTWISE = "POINTWISE"
    ALL_TO_ALL = "ALL_TO_ALL"


def pattern_of(strategy: ShipStrategy) -> DistributionPattern:
    """FORWARD and RESCALE are point-wise, all others all-to-all."""
    if strategy in (ShipStrategy.FORWARD, ShipStrategy.RESCALE):
        return DistributionPattern.POINTWISE
    return DistributionPattern.ALL_TO_ALL


def may_be_overtaken(strategies: Iterable[ShipStrategy]) -> bool:
    """Whether barriers may overtake the data of an operator's inputs, given all of them.

    One that is point-wise or broadcast keeps all of its operator's aligned: who reads data in flight of it cannot be
    found again once a parallelism changes, or would read it several times. Source: Flink StreamGraphGenerator
    (shouldDisableUnalignedCheckpointing).
    """
    return not any(
        strategy is ShipStrategy.BROADCAST or pattern_of(strategy) is DistributionPattern.POINTWISE
        for strategy in strategies
    )


@dataclass(frozen=True, slots=True)
class Partitioning:
    """A ship strategy with the user code that it needs.

    `key_selector` is for HASH (a `runtime.keys.KeySelection`) and CUSTOM, `custom` for CUSTOM only:
    `(key, channels) -> channel`. Both are opaque here. `columns`: of column batches the consumer reads only
    these (HASH only), None: all.
    """

    strategy: ShipStrategy
    key_selector: object | None = None
    custom: object | None = None
    columns: tuple[str, ...] | None = None
