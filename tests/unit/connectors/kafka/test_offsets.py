"""Which subtask reads a partition, and where it begins: rules alone, without a cluster."""

import pytest

from penstock.connectors.api.messaging.source import owner_of
from penstock.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from penstock.connectors.kafka.offsets import KafkaSplit
from penstock.engine.model.errors import ConfigurationError, ExternalError

A, B = KafkaTopicPartition("a", 0), KafkaTopicPartition("a", 1)


class Known:
    """A cluster with two partitions; the group has committed an offset of the first."""

    def __init__(self, committed=None):
        self._committed = {A: 50} if committed is None else committed

    def earliest(self, partitions):
        return dict.fromkeys(partitions, 10)

    def latest(self, partitions):
        return dict.fromkeys(partitions, 90)

    def at_time(self, partitions, timestamp_ms):
        return dict.fromkeys(partitions, timestamp_ms // 100)

    def committed(self, partitions):
        return {one: self._committed[one] for one in partitions if one in self._committed}


@pytest.mark.parametrize(
    ("topic", "start"),
    # Java: "hello".hashCode() is 99162322, that of "polygenelubricants" is -2147483648.
    [("hello", (99162322 * 31 & 0x7FFFFFFF) % 4), ("polygenelubricants", 0), ("", 0)],
)
def test_partitions_of_a_topic_follow_each_other_from_a_place_that_its_name_decides(topic, start):
    owners = [owner_of(topic, number, 4) for number in range(6)]
    assert owners == [(start + number) % 4 for number in range(6)]


def test_characters_beyond_16_bits_count_as_two():
    surrogates = (0xD83D * 31 + 0xDE00) * 31 & 0x7FFFFFFF
    assert owner_of("\U0001f600", 0, 1 << 20) == surrogates % (1 << 20)


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (KafkaOffsetsInitializer.earliest(), {A: 10, B: 10}),
        (KafkaOffsetsInitializer.latest(), {A: 90, B: 90}),
        (KafkaOffsetsInitializer.timestamp(4200), {A: 42, B: 42}),
        (
            KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST),
            {A: 50, B: 10},
        ),
        (
            KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.LATEST),
            {A: 50, B: 90},
        ),
        (KafkaOffsetsInitializer.offsets({A: 7, B: 8}), {A: 7, B: 8}),
        (KafkaOffsetsInitializer.offsets({B: 8}), {A: 50, B: 8}),
        (KafkaOffsetsInitializer.offsets({A: 7}), {A: 7, B: 10}),
        (
            KafkaOffsetsInitializer.offsets({A: 7}, KafkaOffsetResetStrategy.LATEST),
            {A: 7, B: 90},
        ),
    ],
)
def test_each_rule_gives_an_offset_for_each_partition(rule, found):
    assert rule.look_up([A, B], Known()) == found


def test_a_partition_without_an_offset_is_an_error_if_nothing_takes_its_place():
    rule = KafkaOffsetsInitializer.committed_offsets()
    with pytest.raises(ExternalError, match=r"no offset is known for a\[1\]"):
        rule.look_up([A, B], Known())
    assert rule.look_up([A], Known()) == {A: 50}


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: KafkaOffsetsInitializer.timestamp(-1), "epoch milliseconds from 0, got -1"),
        (lambda: KafkaOffsetsInitializer.offsets({A: -2}), "offsets from 0, got .*-2"),
        (lambda: KafkaOffsetsInitializer.offsets({"a": 1}), "got 'a': 1"),
        (
            lambda: KafkaOffsetsInitializer.committed_offsets("earliest"),
            "expected a KafkaOffsetResetStrategy, got 'earliest'",
        ),
    ],
)
def test_what_is_no_offset_is_refused(make, text):
    with pytest.raises(ConfigurationError, match=text):
        make()


def test_a_split_is_over_when_its_stop_is_reached():
    assert not KafkaSplit(A, 5).is_over
    assert not KafkaSplit(A, 5, 6).is_over
    assert KafkaSplit(A, 5, 6).at(6).is_over
    assert KafkaSplit(A, 5, 5).is_over
