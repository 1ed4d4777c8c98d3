"""check_source: what it says of sources that keep their word, and of planted ones that do not."""

from typing import ClassVar

import pytest

from penstock.common import Types
from penstock.connectors.api.base import (
    Boundedness,
    Fetched,
    GeneratorSource,
    PolledSplitReader,
    Poller,
    PollingSource,
    QueueEnumerator,
    ReaderStatus,
    RowBatch,
    Source,
    SourceReaderBase,
    SplitBatch,
    SplitReader,
)
from penstock.connectors.file_system import FileSource, StreamFormat
from penstock.datastream.connectors import DeliveryGuarantee, NumberSequenceSource
from penstock.testing import check_source
from tests.tools.brokers.kafka_topics import bounded, produce

PAGES, ROWS = 4, 3
EXPECTED = [f"{page}.{row}" for page in range(PAGES) for row in range(ROWS)]
EXACTLY, AT_LEAST, NONE = (
    DeliveryGuarantee.EXACTLY_ONCE,
    DeliveryGuarantee.AT_LEAST_ONCE,
    DeliveryGuarantee.NONE,
)


class PageReader(PolledSplitReader):
    def read(self, split):
        for row in range(ROWS):
            yield RowBatch([f"{split}.{row}"])


class Pages(Source):
    """Four pages of three rows, a batch each. `reader`, `enumerator`: the parts, sound by default."""

    reader = PageReader
    enumerator = QueueEnumerator
    produced_type = Types.STRING()
    boundedness = Boundedness.BOUNDED

    def create_enumerator(self, context):
        return self.enumerator(context, list(range(PAGES)))

    def create_reader(self, context):
        return self.reader(context)


def seen(source, **more):
    return check_source(source, EXPECTED, **({"parallelisms": (1, 2)} | more))


def test_a_sound_source_is_exactly_once():
    report = seen(Pages)
    assert report.guarantee is EXACTLY
    assert report.findings == []
    # Through; and at each of 12 points: restored twice, told late, untold, to the one before, anew, given back
    assert report.scenarios == 2 * (1 + 12 * 7)
    report.require(EXACTLY)


class ForgetsItsPlace(PageReader):
    """A checkpoint has the split in hand, but not how far it was read."""

    def snapshot_state(self):
        return [getattr(one, "split", one) for one in super().snapshot_state()]


class ForgetsTheSplitInHand(PageReader):
    def snapshot_state(self):
        return list(self._splits)


class CountsOneTooMany(PageReader):
    """It goes on one row too late."""

    def read_from(self, split, rows):
        return super().read_from(split, rows + 1)


class EndsWithoutBeingTold(PageReader):
    def poll_next(self):
        polled = super().poll_next()
        return ReaderStatus.END_OF_INPUT if polled is ReaderStatus.NOTHING_AVAILABLE else polled


class GivesEmptyBatches(PageReader):
    def read(self, split):
        yield RowBatch([])
        yield from super().read(split)


class TakesNoneBack(QueueEnumerator):
    def add_splits_back(self, splits, subtask):
        """They are lost."""


class RemembersNoneLeft(QueueEnumerator):
    def restore_state(self, state):
        super().restore_state([])


class BeginsAnewWhenRestored(QueueEnumerator):
    def restore_state(self, state):
        """It still has all the splits."""


@pytest.mark.parametrize(
    ("part", "guarantee", "shown"),
    [
        (ForgetsItsPlace, AT_LEAST, "doubled"),
        (ForgetsTheSplitInHand, NONE, "lost"),
        (CountsOneTooMany, NONE, "lost"),
        (EndsWithoutBeingTold, NONE, "END_OF_INPUT came before notify_no_more_splits"),
        (GivesEmptyBatches, NONE, "empty batch"),
        (TakesNoneBack, NONE, "splits given back"),
        (RemembersNoneLeft, NONE, "lost"),
        (BeginsAnewWhenRestored, AT_LEAST, "doubled"),
    ],
)
def test_a_source_with_a_planted_fault_is_found(monkeypatch, part, guarantee, shown):
    name = "enumerator" if issubclass(part, QueueEnumerator) else "reader"
    monkeypatch.setattr(Pages, name, part)
    # Who loses a split that is given back would wait for it.
    patience_s = 0.5 if part is TakesNoneBack else 10
    report = seen(Pages, most_points=6, patience_s=patience_s)
    assert report.guarantee is guarantee
    assert shown in str(report)
    with pytest.raises(AssertionError, match="expected EXACTLY_ONCE of Pages"):
        report.require(EXACTLY)


class AheadReader(SourceReaderBase):
    """Its position is where the fetcher is, which is further than what was handed out."""

    def create_split_reader(self):
        self.fetching = PagesFetched()
        return self.fetching

    def snapshot_state(self):
        at = self.fetching.at
        return [] if at is None else [at]


class PagesFetched(SplitReader):
    at = None

    def add_splits(self, splits):
        self.at = splits[0] if isinstance(splits[0], tuple) else (splits[0], 0)

    def fetch(self):
        page, row = self.at
        if row == ROWS:
            self.at = None
            return Fetched((), ((page, row),))
        self.at = (page, row + 1)
        return Fetched([SplitBatch(RowBatch([f"{page}.{row}"]), (page, row))])


def test_a_reader_that_keeps_where_its_thread_is_loses_what_was_fetched_ahead(monkeypatch):
    monkeypatch.setattr(Pages, "reader", AheadReader)
    report = seen(Pages, parallelisms=(1,), most_points=2, patience_s=0.3)
    assert report.guarantee is NONE
    assert "lost" in str(report)


class Squares(GeneratorSource):
    boundedness = Boundedness.BOUNDED
    produced_type = Types.LONG()

    def run(self, shard, skip):
        yield from [number * number for number in range(8)][skip:]


class SkipsNothing(Squares):
    def run(self, shard, skip):
        return super().run(shard, 0)


class SkipsOneTooMany(Squares):
    def run(self, shard, skip):
        return super().run(shard, skip + 1 if skip else 0)


class HasAnotherOrderEachTime(Squares):
    def run(self, shard, skip):
        records = list(super().run(shard, 0))
        yield from (records[::-1] if skip else records)[skip:]


class DeclaresAnotherType(Squares):
    produced_type = Types.STRING()


@pytest.mark.parametrize(
    ("kind", "guarantee", "shown"),
    [
        (Squares, EXACTLY, ""),
        (SkipsNothing, AT_LEAST, "doubled"),
        (SkipsOneTooMany, NONE, "lost"),
        (HasAnotherOrderEachTime, NONE, "lost"),
        (DeclaresAnotherType, NONE, "does not fit the declared type String"),
    ],
)
def test_a_generator_fails_between_any_of_its_records(kind, guarantee, shown):
    """All of its records would be one batch."""
    report = check_source(kind, [n * n for n in range(8)], parallelisms=(1,), most_points=3)
    assert report.guarantee is guarantee
    assert shown in str(report)


class Queue:
    """Of another system, which keeps what was not acknowledged. `stored`: of all queues, by their number."""

    stored: ClassVar[list] = []

    def __init__(self, number):
        self.number = number

    @classmethod
    def of(cls, *records):
        cls.stored.append(dict(enumerate(records, 1)))
        return cls(len(cls.stored) - 1)

    @property
    def records(self):
        return self.stored[self.number]


class QueuePoller(Poller):
    def __init__(self, queue):
        self.records = queue.records

    def open(self, position):
        self.last = position or 0

    def poll(self):
        behind = [number for number in sorted(self.records) if number > self.last]
        if not behind:
            return []
        self.last = behind[0]
        return [self.records[self.last]]

    def position(self):
        return self.last

    def acknowledge(self, position):
        for number in [one for one in self.records if one <= position]:
            del self.records[number]


class AcknowledgesWhatIsRead(QueuePoller):
    def acknowledge(self, position):
        super().acknowledge(self.last)


class Queued(PollingSource):
    produced_type = Types.STRING()

    def __init__(self, queue, poller):
        self.queue, self.poller = queue, poller

    def create_poller(self, shard):
        return self.poller(self.queue)


@pytest.mark.parametrize(
    ("poller", "guarantee"), [(QueuePoller, EXACTLY), (AcknowledgesWhatIsRead, NONE)]
)
def test_who_is_told_of_a_checkpoint_has_read_on(poller, guarantee):
    report = check_source(
        lambda: Queued(Queue.of(*"abcdef"), poller),
        "abcdef",
        parallelisms=(1,),
        most_points=3,
        patience_s=0.3 if guarantee is NONE else 10,
    )
    assert report.guarantee is guarantee
    if guarantee is NONE:
        assert "of which it was notified when it had read on" in str(report)


def test_the_sources_that_come_along_are_exactly_once(tmp_path):
    check_source(lambda: NumberSequenceSource(0, 9), range(10)).require(EXACTLY)
    for number in range(3):
        (tmp_path / f"part-{number}").write_text("".join(f"{number} {n}\n" for n in range(4)))
    lines = [f"{number} {n}" for number in range(3) for n in range(4)]
    files = StreamFormat.text_line_format()
    report = check_source(
        lambda: FileSource.for_record_stream_format(files, str(tmp_path)).build(), lines
    )
    report.require(EXACTLY)


def test_kafka_is_exactly_once(broker):
    broker.create("in", 3)
    for partition in range(3):
        produce(broker, "in", *(f"{partition} {n}" for n in range(4)), partition=partition)
    records = [f"{partition} {n}" for partition in range(3) for n in range(4)]
    report = check_source(
        lambda: bounded(broker.servers, "in").build(), records, parallelisms=(2,), most_points=3
    )
    report.require(EXACTLY)


class ForgetfulPoller(Poller):
    """It begins at the beginning each time, and pauses for longer than anybody looks who expects nothing more."""

    def open(self, position):
        self.at = self.polls = 0

    def poll(self):
        self.polls += 1
        if self.at == 8 and self.polls < 40:
            return []
        found = EXPECTED[self.at : self.at + 4]
        self.at += len(found)
        return found

    def position(self):
        return self.at


class Forgetful(PollingSource):
    produced_type = Types.STRING()

    def create_poller(self, shard):
        return ForgetfulPoller()


def test_records_that_come_behind_doubled_ones_are_waited_for():
    """What came twice counts as much, so that all seemed to be there."""
    report = check_source(Forgetful, EXPECTED, parallelisms=(1,), most_points=3)
    assert report.guarantee is AT_LEAST, str(report)


class EndlessPoller(ForgetfulPoller):
    def poll(self):
        return ["x"] * 500


class Endless(Forgetful):
    boundedness = Boundedness.BOUNDED

    def create_poller(self, shard):
        return EndlessPoller()


def test_a_bounded_source_that_never_ends_is_left():
    report = check_source(Endless, EXPECTED, parallelisms=(1,), most_points=2)
    assert report.guarantee is NONE, str(report)


def test_a_kit_needs_two_points():
    with pytest.raises(ValueError, match="most_points: expected 2 or more, .* got 1"):
        check_source(Pages, EXPECTED, most_points=1)
