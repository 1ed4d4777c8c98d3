"""Offsets, lags and commits of a Kafka reader."""

import pytest

from penstock.connectors.kafka import reader
from penstock.connectors.kafka.reader import EVERY_S, KafkaFigures


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

    monkeypatch.setattr(reader, "monotonic", lambda: Clock.now)
    return Clock


def values(found: KafkaFigures) -> dict:
    return {(one.name, *dict(one.groups).values()): one.value for one in found.measured()}


def test_what_is_still_to_be_read_is_the_sum_over_the_partitions(clock):
    found = KafkaFigures()
    ends = {("t", 0): 10, ("t", 1): None}
    found.measure({("t", 0): 4, ("t", 1): 7}, ends.get)
    told = values(found)
    assert told["pendingRecords",] == 6
    assert told["recordsLag", None, "t", "0"] == 6
    assert ("recordsLag", None, "t", "1") not in told
    assert told["currentOffset", None, "t", "1"] == 6, "the last that was read"
    assert told["committedOffset", None, "t", "1"] == -1


def test_it_is_measured_at_most_once_a_second(clock):
    found = KafkaFigures()
    found.measure({("t", 0): 4}, {("t", 0): 10}.get)
    clock.now += EVERY_S / 2
    found.measure({("t", 0): 8}, {("t", 0): 10}.get)
    assert values(found)["pendingRecords",] == 6
    clock.now += EVERY_S / 2
    found.measure({("t", 0): 8}, {("t", 0): 10}.get)
    assert values(found)["pendingRecords",] == 2


def test_where_nobody_has_read_yet_nothing_is_known_to_be_pending(clock):
    found = KafkaFigures()
    found.measure({("t", 0): -2}, {("t", 0): 10}.get)
    told = values(found)
    assert ("pendingRecords",) not in told
    assert told["currentOffset", None, "t", "0"] == -1


def test_commits_count_and_their_offsets_are_kept(clock):
    found = KafkaFigures()
    found.measure({("t", 0): 4}, {}.get)
    found.committed({("t", 0): 3})
    found.commit_failed()
    told = values(found)
    assert (told["commitsSucceeded", None], told["commitsFailed", None]) == (1, 1)
    assert told["committedOffset", None, "t", "0"] == 3
