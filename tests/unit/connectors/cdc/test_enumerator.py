"""The enumerator of change sources in jobs without checkpoints."""

from collections import deque

from penstock.connectors.cdc.mysql.source import BinlogView
from penstock.connectors.cdc.source import (
    FINISHED,
    NO_CHECKPOINTS,
    Begin,
    CdcEnumerator,
    DriverSide,
    Forget,
    reported_range,
)
from penstock.connectors.cdc.tables import STREAM, StreamSplit, TableId
from tests.tools.connectors.played_by_hand import FakeEnumeratorContext

TABLES = [TableId("shop", "orders"), TableId("shop", "old")]


class _Database(DriverSide):
    """Each beginning lies at another place. Each table has two ranges."""

    def __init__(self, has_snapshot=True):
        self.positions = deque([10, 20, 30])
        self._has_snapshot = has_snapshot

    def begin(self):
        return Begin(self.positions.popleft(), self._has_snapshot)

    def next_bound(self, table, low, rows):
        return 100 if low is None else None


def started(database, parallelism=1):
    context = FakeEnumeratorContext(parallelism)
    enumerator = CdcEnumerator(context, TABLES, lambda: database, 100, BinlogView)
    enumerator.start()
    for subtask in range(parallelism):
        enumerator.handle_source_event(subtask, NO_CHECKPOINTS)
    return enumerator, context


def read_all(enumerator, context):
    """What subtask 0 is given until it has the stream."""
    given = []
    while not given or not isinstance(given[-1], StreamSplit):
        enumerator.handle_split_request(0, "localhost")
        (split,) = [one for one in context.assigned[0] if not isinstance(one, Forget)]
        context.assigned[0].clear()
        given.append(split)
        if not isinstance(split, StreamSplit):
            done = split.begun(BinlogView((1, 5))).finished()
            enumerator.handle_source_event(0, (FINISHED, (reported_range(done),)))
    return given


def test_a_job_without_checkpoints_reads_everything_from_a_new_beginning_after_a_failure():
    database = _Database()
    enumerator, context = started(database)
    first = read_all(enumerator, context)
    assert [one.split_id for one in first] == [
        *(f"shop.{name}:{number}" for name in ("orders", "old") for number in (0, 1)),
        STREAM,
    ]
    enumerator.add_splits_back(first, 0)
    second = read_all(enumerator, context)
    assert [one.split_id for one in second] == [one.split_id for one in first]
    assert (first[-1].position, second[-1].position) == (10, 20)
    enumerator.handle_split_request(0, "localhost")
    enumerator.add_splits_back(second[:1], 0)  # a failure in its first range
    assert read_all(enumerator, context)[-1].position == 30


def test_without_a_snapshot_only_the_stream_begins_anew():
    enumerator, context = started(_Database(has_snapshot=False))
    first = read_all(enumerator, context)
    enumerator.add_splits_back(first, 0)
    second = read_all(enumerator, context)
    assert [one.position for one in first + second] == [10, 20]


def test_a_failure_of_a_subtask_that_reads_nothing_changes_nothing():
    database = _Database()
    enumerator, context = started(database, parallelism=2)
    enumerator.handle_split_request(1, "localhost")
    first = read_all(enumerator, context)
    forgotten = context.assigned[1]
    assert forgotten == [Forget()]
    enumerator.add_splits_back(forgotten, 1)
    enumerator.handle_split_request(0, "localhost")
    assert context.assigned[0] == []
    assert (first[-1].position, list(database.positions)) == (10, [20, 30])
