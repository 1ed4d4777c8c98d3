"""What a source has in hand stays with its split, however splits are dealt out."""

import pickle

from penstock.engine.model.checkpoints import RedistributionMode
from penstock.engine.runtime.elements import EndOfData, RowBatch, Watermark
from penstock.engine.runtime.sources.in_hand import SplitInHand
from penstock.engine.runtime.sources.operator import SPLITS, SourceOperator, SourceSettings
from penstock.engine.runtime.state.snapshot import IN_HAND, ListPart, OperatorSnapshot
from penstock.engine.runtime.watermarks.strategy import WatermarkStrategy
from tests.tools.runtime.source_parts import FakeReader, NoSource, SourceClock, batch, watermarks

MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()


class Reader(FakeReader):
    """Its splits are their own ids."""

    def __init__(self, splits, *polled, tells_ids=True):
        super().__init__(*polled)
        self.splits = list(splits)
        self.tells_ids = tells_ids
        self.added = []

    def add_splits(self, splits):
        self.added.extend(splits)
        self.splits.extend(splits)

    def split_ids(self, splits):
        return list(splits) if self.tells_ids else ()

    def snapshot_state(self):
        return list(self.splits)


def started(reader, state=()):
    operator, clock = SourceOperator(NoSource(), MONOTONOUS), SourceClock()
    if state:
        part = ListPart(RedistributionMode.SPLIT, list(state))
        operator.restore(OperatorSnapshot(lists={SPLITS: part}))
    operator.start(reader, clock, SourceSettings(200))
    return operator, clock


def state_of(operator, *in_hand):
    """As the chain takes it, and as it comes back from a file."""
    state = operator.snapshot()
    operator.add_in_hand(state, [(0, element) for element in in_hand])
    return pickle.loads(pickle.dumps({name: one.elements for name, one in state.lists.items()}))


def values(elements):
    return [one.values for one in elements if isinstance(one, RowBatch)]


def test_it_is_in_the_state_of_the_split_that_it_came_from():
    operator, _ = started(Reader(["a", "b"], batch("b", 3, 4)))
    operator.poll()
    state = state_of(operator, batch("b", 4).batch)
    assert IN_HAND not in state
    first, second = state[SPLITS]
    assert first == "a"
    assert (second.split, values(second.elements)) == ("b", [["v4"]])


def test_without_anything_in_hand_the_state_is_the_splits_alone():
    operator, _ = started(Reader(["a", "b"], batch("b", 3)))
    operator.poll()
    assert state_of(operator) == {SPLITS: ["a", "b"]}


def test_what_came_from_a_split_that_is_over_is_dealt_out_by_itself():
    operator, _ = started(Reader(["a"], batch("over", 3)))
    operator.poll()
    state = state_of(operator, batch("over", 3).batch, EndOfData(drain=True))
    assert state[SPLITS] == ["a"]
    assert [type(element) for _, element in state[IN_HAND]] == [RowBatch, EndOfData]


def test_it_comes_before_what_is_read_of_its_split_and_counts_for_the_watermark():
    """A watermark of a former subtask was that of all its splits: here there may be others."""
    hand = (batch("b", 7).batch, Watermark(6))
    reader = Reader([], batch("b", 8))
    operator, clock = started(reader, ["a", SplitInHand("b", hand)])
    assert reader.added == ["a", "b"]
    first = operator.poll()
    assert (values(first), watermarks(first)) == ([["v7"]], [])
    assert values(operator.poll()) == [["v8"]]
    operator.watermarks.unregister("a")
    clock.now = 200
    assert watermarks(operator.poll()) == [7]


def test_what_waits_of_several_splits_stays_with_each_in_the_next_checkpoint():
    hands = [SplitInHand(name, (batch(name, 1).batch,)) for name in "abc"]
    operator, _ = started(Reader([]), hands)
    (taken,) = operator.poll()
    state = state_of(operator, taken)
    assert [(one.split, values(one.elements)) for one in state[SPLITS]] == [
        (name, [["v1"]]) for name in "abc"
    ]
    operator.poll()
    state = state_of(operator)
    assert state[SPLITS][:2] == ["a", "b"]
    assert state[SPLITS][2].split == "c"


def test_a_reader_of_one_split_after_the_other_loses_nothing_of_several():
    hands = [SplitInHand(name, (batch(name, at).batch,)) for at, name in enumerate("ab")]
    operator, _ = started(Reader([], tells_ids=False), hands)
    (taken,) = operator.poll()
    first, second = state_of(operator, taken)[SPLITS]
    assert (first.split, values(first.elements)) == ("a", [["v0"], ["v1"]])
    assert second == "b"


def test_a_hand_without_records_does_not_keep_the_reader_from_being_asked():
    """Who gets nothing from a poll waits until the reader wakes it."""
    operator, _ = started(Reader([], batch("a", 8)), [SplitInHand("a", (Watermark(6),))])
    assert values(operator.poll()) == [["v8"]]
