"""What is measured of a KafkaSource's reader: offsets, what is still to be read, commits. Written by the fetcher's thread, read on any.

Source: Flink KafkaSourceReaderMetrics. `recordsLag` of a partition is what Flink takes from the client's own metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import monotonic
from typing import Final

from penstock.model.metrics import Groups, Measured, MetricType

EVERY_S: Final = 1.0
_GROUP: Final = ("KafkaSourceReader", None)
Partition = tuple[str, int]


class KafkaFigures:
    """The figures of one reader. A partition is (topic, number)."""

    def __init__(self) -> None:
        self._offsets: Mapping[Partition, int] = {}
        self._ends: Mapping[Partition, int] = {}
        self._committed: dict[Partition, int] = {}
        self._succeeded = 0
        self._failed = 0
        self._removed = 0
        self._measured_at = 0.0

    def measure(
        self, offsets: Mapping[Partition, int], end_of: Callable[[Partition], int | None]
    ) -> None:
        """Note where the reader is; at most once a second. `end_of`: the offset behind a partition's last record, as far as the
        client has heard of it.
        """
        now = monotonic()
        if now - self._measured_at < EVERY_S:
            return
        self._measured_at = now
        ends = ((partition, end_of(partition)) for partition in offsets)
        self._offsets = dict(offsets)
        self._ends = {partition: end for partition, end in ends if end is not None}

    def committed(self, offsets: Mapping[Partition, int]) -> None:
        """The broker has taken a commit."""
        self._succeeded += 1
        self._committed.update(offsets)

    def commit_failed(self) -> None:
        self._failed += 1

    def removed(self, count: int) -> None:
        """Retention has removed records before they were read."""
        self._removed += count

    def measured(self) -> Iterator[Measured]:
        """The metrics. Any thread."""
        offsets, ends = self._offsets, self._ends
        lags = {one: max(0, end - offsets[one]) for one, end in ends.items() if offsets[one] >= 0}
        if lags:
            yield _gauge("pendingRecords", sum(lags.values()))
        yield Measured("commitsSucceeded", MetricType.COUNTER, self._succeeded, (_GROUP,))
        yield Measured("commitsFailed", MetricType.COUNTER, self._failed, (_GROUP,))
        yield Measured("recordsRemoved", MetricType.COUNTER, self._removed, (_GROUP,))
        for (topic, partition), offset in offsets.items():
            groups: Groups = (_GROUP, ("topic", topic), ("partition", str(partition)))
            committed = self._committed.get((topic, partition), -1)
            yield _gauge("currentOffset", offset - 1 if offset > 0 else -1, groups)
            yield _gauge("committedOffset", committed, groups)
            if (topic, partition) in lags:
                yield _gauge("recordsLag", lags[topic, partition], groups)


def _gauge(name: str, value: int, groups: Groups = ()) -> Measured:
    return Measured(name, MetricType.GAUGE, value, groups)
