"""Which partitions and subpartitions each consumer reads: index arithmetic.

Knows no graph. Source: Flink VertexInputInfoComputationUtils
(docs/spec/execution-graph.md#who-reads-what). All ranges are inclusive.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.model.graph.partitioning import DistributionPattern


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Consecutive partitions and the consecutive consumers that share them."""

    first_partition: int
    last_partition: int
    first_consumer: int
    last_consumer: int


def partition_ranges(
    pattern: DistributionPattern, producers: int, consumers: int
) -> list[PartitionRange]:
    """Return one entry per distinct range of partitions, in the order of consumers: O(producers +
    consumers).

    Point-wise with fewer producers than consumers, a partition serves a run of consumers; with
    more, a consumer reads a run of partitions.
    """
    if pattern is DistributionPattern.ALL_TO_ALL:
        return [PartitionRange(0, producers - 1, 0, consumers - 1)]
    if producers >= consumers:
        return [
            PartitionRange(i * producers // consumers, (i + 1) * producers // consumers - 1, i, i)
            for i in range(consumers)
        ]
    return [
        PartitionRange(
            p, p, -(-p * consumers // producers), -(-(p + 1) * consumers // producers) - 1
        )
        for p in range(producers)
    ]


def subpartition_of(pattern: DistributionPattern, consumer: int, consumers_of_range: int) -> int:
    """Return the one subpartition that a consumer reads of each partition of its range.

    Point-wise, this is the consumer's own index modulo the number of consumers of the range, not
    its place in the range.
    """
    if pattern is DistributionPattern.ALL_TO_ALL:
        return consumer
    return consumer % consumers_of_range
