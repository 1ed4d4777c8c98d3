"""Sources without splits: what is asked for again after a restart, what is acknowledged when, who polls what."""

import itertools
import threading

import numpy as np
import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.api.base import (
    Boundedness,
    GeneratorSource,
    Poller,
    PollingSource,
    RowBatch,
)
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.testing import CollectingSink, check_source
from penstock.testing.conformance.source_run import SourceRun
from tests.tools.programs.checkpoint_programs import Watcher, restarting_environment
from tests.tools.waiting import wait_until

QUEUES = {}
"""Messages that nobody has acknowledged, by the queue's name, and how far each is acknowledged."""


class Queue:
    """It gives messages in order, and gives again what was not acknowledged when somebody connects."""

    def __init__(self, shards, count):
        self.messages = {shard: [f"{shard}.{n}" for n in range(count)] for shard in range(shards)}
        self.acknowledged = dict.fromkeys(range(shards), 0)
        self.woken = threading.Event()


class QueuePoller(Poller):
    def __init__(self, queue, shard, is_bounded, seeks):
        self.queue, self.shard, self.is_bounded, self.seeks = queue, shard, is_bounded, seeks

    def open(self, position):
        self.at = self.queue.acknowledged[self.shard] if position is None else position
        if not self.seeks:
            self.at = self.queue.acknowledged[self.shard]

    def poll(self):
        found = self.queue.messages[self.shard][self.at : self.at + 2]
        self.at += len(found)
        return None if self.is_bounded and not found else found

    def position(self):
        return self.at

    def acknowledge(self, position):
        self.queue.acknowledged[self.shard] = max(self.queue.acknowledged[self.shard], position)


class QueueSource(PollingSource):
    produced_type = Types.STRING()

    def __init__(self, name, shards=1, *, is_bounded=True, seeks=True):
        self.name, self.shards, self.is_bounded, self.seeks = name, shards, is_bounded, seeks

    @property
    def boundedness(self):
        kinds = Boundedness
        return kinds.BOUNDED if self.is_bounded else kinds.CONTINUOUS_UNBOUNDED

    def create_poller(self, shard):
        return QueuePoller(QUEUES[self.name], shard, self.is_bounded, self.seeks)


def all_of(shards, count):
    return [f"{shard}.{n}" for shard in range(shards) for n in range(count)]


@pytest.fixture
def queue(request):
    name = request.node.name
    yield name
    QUEUES.pop(name, None)


@pytest.mark.parametrize("is_bounded", [True, False])
def test_a_poller_that_goes_on_behind_its_position_is_exactly_once(queue, is_bounded):
    def make():
        QUEUES[queue] = Queue(3, 6)
        return QueueSource(queue, 3, is_bounded=is_bounded)

    check_source(make, all_of(3, 6), most_points=3).require(DeliveryGuarantee.EXACTLY_ONCE)


def test_a_broker_that_sends_again_what_is_not_acknowledged_is_at_least_once(queue):
    """Of a checkpoint that nobody was told of it sends everything again."""

    def make():
        QUEUES[queue] = Queue(2, 6)
        return QueueSource(queue, 2, seeks=False)

    report = check_source(make, all_of(2, 6), parallelisms=(1, 2), most_points=3)
    assert report.guarantee is DeliveryGuarantee.AT_LEAST_ONCE


def test_only_what_a_complete_checkpoint_covers_is_acknowledged(queue):
    QUEUES[queue] = Queue(1, 8)
    run = SourceRun(QueueSource(queue, is_bounded=False), 1)
    run.read(batches=2)
    run.checkpoint(1)
    run.read(batches=1)
    run.checkpoint(2)
    assert QUEUES[queue].acknowledged == {0: 0}
    run.complete(1)
    run.read(batches=1)
    run.close()
    assert run.records == all_of(1, 8)
    assert QUEUES[queue].acknowledged == {0: 4}


def test_what_ends_is_acknowledged_too(queue):
    QUEUES[queue] = Queue(1, 2)
    run = SourceRun(QueueSource(queue), 1)
    run.read()
    run.checkpoint(1)
    run.complete(1)
    run.close()
    assert QUEUES[queue].acknowledged == {0: 2}


def test_shards_are_spread_and_a_subtask_may_have_several_or_none(queue):
    QUEUES[queue] = Queue(3, 2)
    run = SourceRun(QueueSource(queue, 3), 2)
    run.read()
    kept = run.checkpoint(1)
    run.close()
    assert sorted(run.records) == all_of(3, 2)
    assert kept.readers == ((), ())
    QUEUES[queue] = Queue(1, 2)
    run = SourceRun(QueueSource(queue, 1), 3)
    run.read()
    run.close()
    assert run.records == all_of(1, 2)


def test_without_checkpoints_each_poll_is_acknowledged(queue):
    QUEUES[queue] = Queue(2, 5)
    env = restarting_environment(Watcher(), parallelism=2)
    results = CollectingSink()
    stream = env.from_source(QueueSource(queue, 2), WatermarkStrategy.no_watermarks(), "queue")
    assert stream.get_type() == Types.STRING()
    stream.sink_to(results)
    env.execute("queue")
    assert sorted(results.values) == all_of(2, 5)
    assert QUEUES[queue].acknowledged == {0: 5, 1: 5}


class Numbers(GeneratorSource):
    """Two shards of eight numbers; None after every third."""

    shards = 2
    produced_type = Types.LONG()
    boundedness = Boundedness.BOUNDED

    def run(self, shard, skip):
        for number in range(skip, 8):
            yield 100 * shard + number
            if number % 3 == 2:
                yield None


def test_a_generator_is_a_source():
    expected = [*range(8), *range(100, 108)]
    check_source(Numbers, expected).require(DeliveryGuarantee.EXACTLY_ONCE)


class Growing(GeneratorSource):
    """One list that grows."""

    boundedness = Boundedness.BOUNDED

    def run(self, shard, skip):
        numbers = []
        for number in range(skip, 3):
            numbers.append(number)
            yield numbers


def test_a_list_is_a_record_as_it_was_when_it_was_yielded():
    run = SourceRun(Growing(), 1)
    run.read(batches=1)
    run.close()
    assert run.records == [[0], [0, 1], [0, 1, 2]]


def test_a_record_of_none_hands_on_what_was_yielded():
    run = SourceRun(Numbers(), 1)
    run.read(batches=1)
    run.close()
    assert run.records == [0, 1, 2]


class Timed(QueuePoller):
    def poll(self):
        found = super().poll()
        return None if found is None else RowBatch(found, np.arange(len(found), dtype=np.int64))


class TimedSource(QueueSource):
    def create_poller(self, shard):
        return Timed(QUEUES[self.name], shard, is_bounded=True, seeks=True)


def test_a_poller_may_give_a_batch_with_times(queue):
    QUEUES[queue] = Queue(1, 4)
    run = SourceRun(TimedSource(queue), 1)
    run.read()
    run.close()
    assert run.records == all_of(1, 4)


class NothingButPositions(QueuePoller):
    """Its messages give no records."""

    def poll(self):
        return RowBatch([]) if super().poll() else []


class SilentSource(QueueSource):
    def create_poller(self, shard):
        return NothingButPositions(QUEUES[self.name], shard, self.is_bounded, self.seeks)


def test_an_empty_batch_moves_the_position_and_is_acknowledged():
    queue = QUEUES["silent"] = Queue(1, 6)
    run = SourceRun(SilentSource("silent", is_bounded=False), 1)
    numbers = itertools.count(1)

    def is_acknowledged():
        run.look_on(1)
        number = next(numbers)
        run.checkpoint(number)
        run.complete(number)
        return queue.acknowledged[0] == 6

    wait_until(is_acknowledged, "it is not acknowledged")
    run.close()
    assert run.records == []
