"""Who reads which partition of a topic. Plain functions.

Source: Flink KafkaSourceEnumerator.getSplitOwner, SplitAssignerBase of Pulsar's connector.
"""

from __future__ import annotations


def owner_of(topic: str, partition: int, parallelism: int) -> int:
    """The subtask that reads it: a topic's partitions follow each other, from a place that its name decides."""
    start = (_java_hash(topic) * 31 & 0x7FFFFFFF) % parallelism
    return (start + partition) % parallelism


def _java_hash(text: str) -> int:
    """String.hashCode, over UTF-16 code units; its sign does not matter to who masks it."""
    units = text.encode("utf-16-be")
    found = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        found = (31 * found + (high << 8 | low)) & 0xFFFFFFFF
    return found
