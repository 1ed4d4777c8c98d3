"""Partitions handed out, positions in checkpoints, messages to batches. Expectations: docs/internals/dataframes.md, docs/guides/dataframes.md."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Types
from penstock.engine.hosting.jobmanager.coordinators.source_coordinator import CoordinatedVertex
from penstock.engine.hosting.jobmanager.ha.packed_job import SubmittedJob
from penstock.engine.hosting.network.wire.addresses import Addresses
from penstock.engine.hosting.network.wire.dialling import Ticket
from penstock.engine.hosting.program.host import lend_frames
from penstock.engine.hosting.shipping.pickling import deserialize, serialize
from penstock.engine.hosting.spark.dataframes.feed_reader import FeedPlace, Position
from penstock.engine.hosting.spark.dataframes.source import (
    FrameEnumerator,
    FrameFormat,
    FrameReader,
    FrameSource,
    FrameSplit,
    MessageDecoder,
    StageFrameSource,
)
from penstock.engine.hosting.spark.dataframes.spool import write_partition
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.runtime.codecs.convert import arrow_schema
from penstock.engine.runtime.elements import ColumnBatch
from penstock.engine.runtime.sources.contract import Fetched, ReaderStatus, SplitBatch

TICKET = Ticket("certificate", b"t" * 32, "feed", "here")
PLACE = FeedPlace("127.0.0.1", 1, TICKET, Addresses())
LONGS = Types.ROW_NAMED(["x"], [Types.LONG()])


class Run:
    """`FrameRun` of so many partitions; those in `files` are spooled."""

    def __init__(self, partitions, files=None) -> None:
        self._partitions = partitions
        self.is_spooled = files is not None
        self.files = files or {}
        self.asked = []

    def place_for_reader(self):
        return PLACE

    def partitions(self):
        return self._partitions

    def spool(self, partitions):
        self.asked.append(list(partitions))

    def spooled(self):
        return dict(self.files)


class Context:
    """`EnumeratorContext`: remembers."""

    def __init__(self) -> None:
        self.assigned = []
        self.ended = []
        self.periodic = None
        self.readers = [0, 1]

    def registered_readers(self):
        return self.readers

    def assign_splits(self, subtask, splits):
        self.assigned += [(subtask, split) for split in splits]

    def signal_no_more_splits(self, subtask):
        self.ended.append(subtask)

    def call_periodically(self, period_ms, call):
        self.periodic = call


def started(run, state=None):
    context = Context()
    enumerator = FrameEnumerator(context, run)
    if state is not None:
        enumerator.restore_state(deserialize(serialize(state)))
    enumerator.start()
    return enumerator, context


def test_each_request_gets_a_partition_and_a_reader_hears_first_where_feeds_are():
    enumerator, context = started(Run(3))
    for subtask in (0, 1):
        enumerator.add_reader(subtask)
    for subtask in (0, 1, 0, 1, 0):
        enumerator.handle_split_request(subtask, "host")
    assert context.assigned == [
        (0, PLACE), (1, PLACE), (0, FrameSplit(0)), (1, FrameSplit(1)), (0, FrameSplit(2)),
    ]  # fmt: skip
    assert context.ended == [1, 0]


def test_what_a_lost_reader_had_is_handed_out_again_but_not_the_place():
    enumerator, context = started(Run(1))
    enumerator.handle_split_request(0, "host")
    enumerator.add_splits_back([PLACE, FrameSplit(0)], 0)
    enumerator.handle_split_request(1, "host")
    assert context.assigned[-1] == (1, FrameSplit(0))


def test_the_state_has_what_was_not_handed_out():
    enumerator, _ = started(Run(3))
    enumerator.handle_split_request(0, "host")
    restored, context = started(Run(3), enumerator.snapshot_state())
    for _ in range(3):
        restored.handle_split_request(0, "host")
    assert [split for _, split in context.assigned] == [FrameSplit(1), FrameSplit(2)]
    assert context.ended == [0]


def test_a_partition_in_a_file_is_handed_out_when_it_is_there(tmp_path):
    run = Run(2, {})
    run.is_spooled = True
    enumerator, context = started(run)
    assert run.asked == []
    for subtask in (0, 1):
        enumerator.add_reader(subtask)
    assert run.asked == [[0, 1]]
    context.assigned.clear()
    enumerator.handle_split_request(0, "host")
    enumerator.handle_split_request(1, "host")
    assert context.assigned == []
    run.files[1] = write_partition(str(tmp_path), 1, [b"m"])
    context.periodic()
    assert context.assigned == [(0, FrameSplit(1, file=run.files[1]))]
    state = enumerator.snapshot_state()
    run.files[0] = write_partition(str(tmp_path), 0, [b"n"])
    context.periodic()
    assert context.assigned[1:] == [(1, FrameSplit(0, file=run.files[0]))]
    enumerator.handle_split_request(0, "host")
    assert context.ended == [0]

    restored, context = started(run, state)
    restored.add_reader(0)
    assert run.asked[1:] == [[0]]
    context.assigned.clear()
    restored.handle_split_request(0, "host")
    assert context.assigned == [(0, FrameSplit(0, file=run.files[0]))]


class WholeRun(Run):
    """All partitions are written together, and how many there are is known then. No reader gets a feed."""

    def __init__(self) -> None:
        super().__init__(None, {})
        self.is_spooled = True
        self.is_written = False

    def place_for_reader(self):
        return None

    def spooled(self):
        return dict(self.files) if self.is_written else None


def test_partitions_whose_number_comes_with_their_files_are_handed_out_together(tmp_path):
    run = WholeRun()
    enumerator, context = started(run)
    early = enumerator.snapshot_state()
    for subtask in (0, 1):
        enumerator.add_reader(subtask)
        enumerator.handle_split_request(subtask, "host")
    assert run.asked == [[]]
    assert (context.assigned, context.ended) == ([], [])
    context.periodic()
    assert (context.assigned, context.ended) == ([], [])
    run.files = {one: write_partition(str(tmp_path), one, [b"m"]) for one in range(3)}
    run.is_written = True
    context.periodic()
    assert context.assigned == [(one, FrameSplit(one, file=run.files[one])) for one in (0, 1)]
    late = enumerator.snapshot_state()
    for state, left in ((early, [0, 1, 2]), (late, [2])):
        restored, context = started(run, state)
        restored.add_reader(0)
        for _ in range(len(left) + 1):
            restored.handle_split_request(0, "host")
        assert [split.partition for _, split in context.assigned] == left
        assert context.ended == [0]


def test_a_dataframe_without_partitions_ends():
    run = WholeRun()
    run.is_written = True
    enumerator, context = started(run)
    enumerator.add_reader(0)
    enumerator.handle_split_request(0, "host")
    assert (context.assigned, context.ended) == ([], [0])


def test_a_request_of_a_reader_that_is_gone_takes_no_partition(tmp_path):
    run = Run(1, {})
    run.is_spooled = True
    enumerator, context = started(run)
    enumerator.add_reader(0)
    enumerator.handle_split_request(0, "host")
    context.assigned.clear()
    context.readers = []
    run.files[0] = write_partition(str(tmp_path), 0, [b"m"])
    context.periodic()
    assert context.assigned == []
    context.readers = [0]
    enumerator.handle_split_request(0, "host")
    assert context.assigned == [(0, FrameSplit(0, file=run.files[0]))]


def test_a_source_is_shipped_without_its_dataframe_and_says_so_where_it_is_needed():
    class Frame:
        run = Run(1)

    source = FrameSource(Frame(), FrameFormat(LONGS))
    assert isinstance(source.in_batch(), StageFrameSource)
    shipped = deserialize(serialize(source))
    assert shipped.produced_type == LONGS
    with pytest.raises(ConfigurationError, match="needs the program that makes the DataFrame"):
        shipped.create_enumerator(Context())


def test_a_job_that_was_taken_over_reads_the_dataframes_of_the_program_that_took_it():
    class Frame:
        run = Run(1)

    def job_of(source):
        place = CoordinatedVertex("v", 1, "DataFrame", 2, source, uid="u")
        return SubmittedJob(None, (place,), None, b"")

    own = FrameSource(Frame(), FrameFormat(LONGS))
    taken = job_of(deserialize(serialize(own)))
    lend_frames(taken, job_of(own))
    assert taken.coordinated[0].coordinator.frame is own.frame


# ---------------------------------------------------------------------- reader


class Fetcher:
    def __init__(self) -> None:
        self.splits = []
        self.results = []

    def add_splits(self, splits):
        self.splits += splits

    def poll(self):
        return self.results.pop(0) if self.results else None

    def close(self):
        return


class ReaderPlace:
    """`ReaderContext`."""

    def __init__(self) -> None:
        self.requests = 0
        self.fetcher = None
        self.now_ms = lambda: 0

    def send_split_request(self):
        self.requests += 1

    def start_fetcher(self, split_reader):
        split_reader.close()
        self.fetcher = Fetcher()
        return self.fetcher


def test_restored_partitions_that_files_have_wait_for_no_place(tmp_path):
    context = ReaderPlace()
    reader = FrameReader(context, FrameFormat(LONGS))
    split = FrameSplit(0, file=write_partition(str(tmp_path), 0, [b"m"]))
    reader.add_splits([split])
    assert context.fetcher.splits == [split]


def test_restored_partitions_wait_for_the_place_and_positions_follow_what_was_given():
    context = ReaderPlace()
    reader = FrameReader(context, FrameFormat(LONGS))
    restored = FrameSplit(4, Position(7, 99))
    reader.add_splits([restored])
    reader.start()
    assert context.fetcher is None
    assert reader.snapshot_state() == [restored]
    assert reader.poll_next() is ReaderStatus.NOTHING_AVAILABLE
    reader.add_splits([PLACE])
    assert context.fetcher.splits == [restored]
    batch = ColumnBatch(pa.record_batch({"x": [1]}))
    behind = FrameSplit(4, Position(8, 100))
    context.fetcher.results = [Fetched([SplitBatch(batch, 4, behind)]), Fetched(finished=[4])]
    assert reader.poll_next().batch is batch
    assert reader.snapshot_state() == [FrameSplit(4, Position(8, 100))]
    reader.notify_no_more_splits()
    reader.poll_next()
    assert reader.snapshot_state() == []
    assert reader.poll_next() is ReaderStatus.END_OF_INPUT


# ---------------------------------------------------------------------- messages


def message_of(schema, columns):
    batch = pa.record_batch(
        [pa.array(one, kind) for one, kind in zip(columns, schema.types, strict=True)], schema
    )
    return batch, batch.serialize().to_pybytes()


EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Types.LONG(), -5, -5),
        (Types.TIMESTAMP_LTZ(), EPOCH + dt.timedelta(microseconds=1999), 1),
        (Types.TIMESTAMP_LTZ(), EPOCH - dt.timedelta(microseconds=1), -1),
        (Types.SQL_TIMESTAMP(), dt.datetime(1970, 1, 2), 86_400_000),  # ruff: ignore[call-datetime-without-tzinfo] - NTZ
        (Types.SQL_DATE(), dt.date(1969, 12, 31), -86_400_000),
    ],
)
def test_the_time_of_a_record_is_in_whole_milliseconds(kind, value, expected):
    row = Types.ROW_NAMED(["k", "at"], [Types.INT(), kind])
    data, message = message_of(arrow_schema(row), [[1, 2], [value, value]])
    batch = MessageDecoder(FrameFormat(row, timestamp_column="at")).batch(message)
    assert isinstance(batch, ColumnBatch)
    assert batch.data == data
    assert batch.timestamps.dtype == np.int64
    assert batch.timestamps.tolist() == [expected, expected]


def test_a_record_without_a_time_is_shown():
    row = Types.ROW_NAMED(["k", "at"], [Types.INT(), Types.LONG()])
    _, message = message_of(arrow_schema(row), [[1, 2], [3, None]])
    with pytest.raises(
        ValueError, match=r"timestamp column 'at' is NULL in \{'k': 2, 'at': None\}"
    ):
        MessageDecoder(FrameFormat(row, timestamp_column="at")).batch(message)


def test_sparks_large_types_become_the_usual_ones():
    row = Types.ROW_NAMED(
        ["s", "a", "m"],
        [
            Types.STRING(),
            Types.LIST(Types.STRING()),
            Types.MAP(Types.STRING(), Types.DECIMAL(5, 1)),
        ],
    )
    large = pa.schema([
        ("s", pa.large_string()),
        ("a", pa.list_(pa.large_string())),
        ("m", pa.map_(pa.large_string(), pa.decimal128(5, 1))),
    ])
    _, message = message_of(large, [["a"], [["b", None]], [[("c", Decimal("1.5"))]]])
    batch = MessageDecoder(FrameFormat(row, has_large_types=True)).batch(message)
    assert batch.data.schema == arrow_schema(row)
    assert batch.data.to_pylist() == [{"s": "a", "a": ["b", None], "m": [("c", Decimal("1.5"))]}]
