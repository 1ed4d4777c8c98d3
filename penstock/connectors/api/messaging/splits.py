"""Assigns the partitions of a topic to subtasks. Plain functions.

Source: Flink KafkaSourceEnumerator.getSplitOwner, SplitAssignerBase of Pulsar's connector.
"""

from __future__ import annotations


def owner_of(topic: str, partition: int, parallelism: int) -> int:
    """The subtask that reads the partition. A topic's name decides who reads partition 0; the others follow in turn."""
    start = (_java_hash(topic) * 31 & 0x7FFFFFFF) % parallelism
    return (start + partition) % parallelism


def _java_hash(text: str) -> int:
    """Java's String.hashCode, over UTF-16 code units. It is unsigned here; the caller masks the sign anyway."""
    units = text.encode("utf-16-be")
    found = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        found = (31 * found + (high << 8 | low)) & 0xFFFFFFFF
    return found
