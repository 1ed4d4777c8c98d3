"""Ranges of a snapshot, and which changes they have seen: against a table that is replayed by hand."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.cdc.tables import Seen, SnapshotSplit, TableId

TABLE = TableId("public", "t")


@dataclass(frozen=True)
class UpTo:
    """A view that saw the first changes."""

    last: int

    @property
    def plain(self):
        return (self.last,)

    def covers(self, mark):
        return mark <= self.last

    def is_passed(self, mark):
        return mark > self.last


@st.composite
def histories(draw):
    """Changes of keys 0 to 19 (a number or None: deleted); ranges; where each is read, and where it is stopped."""
    changes = draw(
        st.lists(st.tuples(st.integers(0, 19), st.one_of(st.none(), st.integers())), max_size=60)
    )
    bounds = sorted(draw(st.sets(st.integers(1, 19), max_size=4)))
    lows, highs = [None, *bounds], [*bounds, None]
    places = st.integers(0, len(changes))
    reads = []
    for _ in lows:
        views = sorted(draw(st.lists(places, min_size=1, max_size=4)))
        stops = sorted(draw(st.lists(st.integers(0, 19), max_size=len(views) - 1)))
        reads.append((views, stops))
    return changes, list(zip(lows, highs, strict=True)), reads


@given(histories())
def test_snapshot_and_stream_together_give_the_table_with_no_change_missing_or_doubled(history):
    changes, ranges, reads = history
    content = {}
    pieces = []
    for number, (low, high) in enumerate(ranges):
        split = SnapshotSplit(TABLE, number, low, high)
        views, stops = reads[number]
        for turn, view in enumerate(views):
            split = split.begun(UpTo(view))
            rows = sorted(replay(changes[:view]).items())
            stop = stops[turn] if turn < len(stops) and turn < len(views) - 1 else None
            for key, value in rows:
                if (low is not None and key < low) or (high is not None and key >= high):
                    continue
                if split.after is not None and (key,) <= split.after:
                    continue
                if stop is not None and key > stop:
                    break
                assert key not in content
                content[key] = value
                split = split.read((key,))
            if stop is None:
                break
        pieces += split.finished().pieces
    seen = Seen(pieces)
    for place, (key, value) in enumerate(changes, 1):
        if not seen.covers(TABLE, (key,), place):
            assert content.get(key) == replay(changes[: place - 1]).get(key)
            content = replay([(key, value)], content)
    assert content == replay(changes)


def replay(changes, content=None):
    found = dict(content or {})
    for key, value in changes:
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


def test_a_piece_of_another_table_says_nothing():
    split = SnapshotSplit(TABLE, 0).begun(UpTo(9)).finished()
    seen = Seen(split.pieces)
    assert seen.covers(TABLE, (1,), 9)
    assert not seen.covers(TableId("public", "other"), (1,), 9)
    assert not seen.covers_all(TableId("public", "other"), 9)
    assert seen.covers_all(TABLE, 9)
    assert not seen.covers_all(TABLE, 10)
    assert seen.is_passed(10)
    assert not seen.is_passed(9)
