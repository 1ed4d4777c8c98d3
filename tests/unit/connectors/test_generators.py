import pickle
import socket
import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Types
from penstock.connectors import socket_text
from penstock.connectors.datagen import CollectionSource
from penstock.connectors.nexmark import (
    AUCTION,
    BASE_MS,
    BID,
    PERSON,
    NexmarkGenerator,
    NexmarkSource,
)
from penstock.connectors.socket_text import LineReader, SocketTextSource
from penstock.datastream.connectors import (
    BatchGeneratorSource,
    DataGeneratorSource,
    DiscardingSink,
    NumberSequenceSource,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.sources.contract import Boundedness, ReaderStatus, SplitBatch
from tests.tools.connectors.played_by_hand import (
    FakeEnumeratorContext,
    FakeReaderContext,
    all_values,
    run_source,
    serve,
    writer_context,
)

TAGGED = Types.TUPLE([Types.LONG(), Types.LIST(Types.STRING())])


def test_a_collection_is_read_once_in_order_whatever_the_parallelism():
    values = list(range(10_000))
    assert all_values(run_source(CollectionSource.of(values, None))) == values
    assert all_values(run_source(CollectionSource.of(values, None), parallelism=3)) == values
    assert all_values(run_source(CollectionSource.of([], None))) == []


def test_a_collection_travels_with_its_source():
    source = pickle.loads(pickle.dumps(CollectionSource.of([(1, "a")], None)))
    assert all_values(run_source(source)) == [(1, "a")]


@settings(max_examples=50)
@given(st.integers(-50, 50), st.integers(0, 30_000), st.integers(1, 7))
def test_a_number_sequence_has_both_bounds_and_every_number_once(start, more, parallelism):
    got = all_values(run_source(NumberSequenceSource(start, start + more), parallelism))
    assert sorted(got) == list(range(start, start + more + 1))


def test_a_list_that_a_generator_returns_twice_is_each_record_s_own():
    tags = ["x"]
    source = DataGeneratorSource(lambda index: (index, tags), 3, type_info=TAGGED)
    records = all_values(run_source(source))
    for number, (_, own) in enumerate(records):
        own.append(number)
    assert records == [(0, ["x", 0]), (1, ["x", 1]), (2, ["x", 2])]
    assert tags == ["x"]


def test_a_number_sequence_gives_every_subtask_its_share():
    batches = run_source(NumberSequenceSource(1, 100), parallelism=4)
    assert [sum(len(batch) for batch in part) for part in batches] == [25, 25, 25, 25]
    with pytest.raises(ConfigurationError, match="start=2, end=1"):
        NumberSequenceSource(2, 1)
    assert NumberSequenceSource(1, 1).produced_type == Types.LONG()


@pytest.mark.parametrize("rate", [None, 1000.0])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_generator_makes_each_index_once(rate, parallelism):
    source = DataGeneratorSource(
        lambda index: index * 2, 100, rate, Types.LONG(), timestamp=lambda index: index + 1000
    )
    batches = run_source(source, parallelism)
    assert sorted(all_values(batches)) == [index * 2 for index in range(100)]
    for part in batches:
        for batch in part:
            assert batch.timestamps.tolist() == [value // 2 + 1000 for value in batch.values]


def test_a_rate_is_kept_over_all_subtasks():
    source = DataGeneratorSource(lambda index: index, None, rate_per_second=1000)
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    context = FakeReaderContext(0, 2)
    coordinator = FakeEnumeratorContext(2)
    enumerator = source.create_enumerator(coordinator)
    reader = source.create_reader(context)
    reader.start()
    serve(coordinator, enumerator, context, reader)
    made = 0
    while context.clock_ms < 2000:
        polled = reader.poll_next()
        if isinstance(polled, SplitBatch):
            made += len(polled.batch)
        else:
            assert polled is ReaderStatus.NOTHING_AVAILABLE
            at = context.wake_ups.pop()
            assert at > context.clock_ms
            context.clock_ms = at
    assert 990 <= made <= 1010  # half of 1000 a second, for two seconds


def test_a_late_reader_catches_up_with_its_rate():
    source = DataGeneratorSource(lambda index: index, 10_000, rate_per_second=1000)
    context, coordinator = FakeReaderContext(), FakeEnumeratorContext()
    enumerator = source.create_enumerator(coordinator)
    reader = source.create_reader(context)
    reader.start()
    serve(coordinator, enumerator, context, reader)
    assert len(reader.poll_next().batch) == 1
    context.clock_ms = 1000
    assert len(reader.poll_next().batch) == 1000


def make(start, stop):
    numbers = np.arange(start, stop)
    return pa.RecordBatch.from_pydict({"n": numbers, "ts": numbers + 5})


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("rate", [None, 5000.0])
def test_batches_are_generated_in_blocks_with_timestamps(parallelism, rate):
    source = BatchGeneratorSource(make, 1000, 64, rate, timestamps="ts")
    batches = run_source(source, parallelism)
    assert sorted(row["n"] for row in all_values(batches)) == list(range(1000))
    for part in batches:
        for batch in part:
            assert batch.timestamps.dtype == np.int64
            assert batch.timestamps.tolist() == batch.data.column("ts").to_pylist()


def test_a_snapshot_of_a_generator_goes_on_where_it_was():
    source = BatchGeneratorSource(make, 100, 10, rate_per_second=1000)
    context, coordinator = FakeReaderContext(), FakeEnumeratorContext()
    enumerator = source.create_enumerator(coordinator)
    reader = source.create_reader(context)
    reader.start()
    serve(coordinator, enumerator, context, reader)
    seen = reader.poll_next().batch.data.column("n").to_pylist()
    context.clock_ms = 23
    while isinstance(polled := reader.poll_next(), SplitBatch):
        seen += polled.batch.data.column("n").to_pylist()
    restored = source.create_reader(FakeReaderContext())
    restored._limiter = None
    restored.add_splits(reader.snapshot_state())
    while isinstance(polled := restored.poll_next(), SplitBatch):
        seen += polled.batch.data.column("n").to_pylist()
    assert seen == list(range(100))


def test_wrong_generators_are_refused():
    for arguments, text in (((-1,), "count"), ((1, 0.0), "rate_per_second"), ((1, -1.0), "rate")):
        with pytest.raises(ConfigurationError, match=text):
            DataGeneratorSource(str, *arguments)
    with pytest.raises(ConfigurationError, match="batch_size"):
        BatchGeneratorSource(make, 1, 0)


# ---------------------------------------------------------------------- Nexmark


def test_nexmark_events_do_not_depend_on_batches_and_parallelism():
    whole = NexmarkGenerator(7, 10_000).batch(0, 5000)
    parts = [NexmarkGenerator(7, 10_000).batch(a, a + 250) for a in range(0, 5000, 250)]
    assert pa.Table.from_batches([whole]).equals(pa.Table.from_batches(parts).combine_chunks())
    got = all_values(run_source(NexmarkSource(5000, 7, batch_size=333), parallelism=3))
    assert sorted(map(str, got)) == sorted(map(str, whole.to_pylist()))
    assert NexmarkGenerator(8, 10_000).batch(0, 5000) != whole


def test_nexmark_has_the_benchmarks_proportions():
    data = NexmarkGenerator(0, 10_000).batch(0, 200_000)
    kind, auction, bidder, price, ts = (data.column(index).to_numpy() for index in range(5))
    assert [int((kind == k).sum()) for k in (PERSON, AUCTION, BID)] == [4000, 12_000, 184_000]
    assert ts[0] == BASE_MS and ts[-1] == BASE_MS + 19_999 and (np.diff(ts) >= 0).all()
    bids = kind == BID
    newest = 1000 + np.arange(len(kind)) // 50 * 3 + 2
    is_hot = (auction[bids] - 1000) % 100 == 0
    assert 0.49 < is_hot.mean() < 0.53
    assert (auction[bids] <= newest[bids] + 10).all() and (
        auction[bids] >= newest[bids] - 103
    ).all()
    assert 0.74 < ((bidder[bids] - 1001) % 100 == 0).mean() < 0.78
    assert price[bids].min() >= 100 and price[bids].max() <= 10**8
    assert 0.45 < (price[bids] < 100_000).mean() < 0.55
    own = auction[kind == AUCTION]
    assert own.tolist() == list(range(1000, 1000 + 12_000))
    assert bidder[kind == PERSON].tolist() == list(range(1000, 5000))


def test_nexmark_can_give_bids_only_and_fewer_columns():
    source = NexmarkSource(1000, 1, bids_only=True, columns=("auction", "ts"), batch_size=30)
    got = all_values(run_source(source, parallelism=2))
    assert len(got) == 920 and set(got[0]) == {"auction", "ts"}
    limited = NexmarkSource(1000, 1, rate_per_second=20_000, bids_only=True)
    assert len(all_values(run_source(limited, parallelism=2))) == 920
    with pytest.raises(ConfigurationError, match="must contain 'ts'"):
        NexmarkSource(1, columns=("auction",))


# ---------------------------------------------------------------------- socket and discard


def test_socket_lines_come_until_the_server_closes():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def send():
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"one\r\ntw")
                connection.sendall("o\nß".encode()[:-1])
                connection.sendall("ß".encode()[-1:])

        thread = threading.Thread(target=send)
        thread.start()
        got = all_values(run_source(SocketTextSource("127.0.0.1", port), 2, max_polls=10_000_000))
        thread.join()
    assert got == ["one", "two", "ß"]
    with pytest.raises(ConfigurationError, match="port"):
        SocketTextSource("localhost", 0)


@pytest.mark.parametrize("delimiter", ["\n", "--"])
def test_a_socket_line_that_does_not_end_is_put_aside_and_the_next_ones_are_read(
    monkeypatch, delimiter
):
    monkeypatch.setattr(socket_text, "MOST_OF_LINE", 200_000)
    end = delimiter.encode()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def send():
            connection, _ = server.accept()
            with connection:
                connection.sendall(end.join([b"one", b"x" * 1_000_000, b"two", b""]))

        thread = threading.Thread(target=send)
        thread.start()
        reader = LineReader(delimiter)
        reader.add_splits([("127.0.0.1", port)])
        lines, is_open = [], True
        while is_open:
            fetched = reader.fetch()
            lines += [line for one in fetched.batches for line in one.batch.values]
            is_open = not fetched.finished
        thread.join()
    first, malformed, last = lines
    assert (first, last) == ("one", "two")
    assert malformed.raw == "x" * 200
    assert "has more than 200000 characters" in str(malformed.failure)


def test_the_discarding_sink_takes_anything_and_commits_nothing():
    sink = DiscardingSink()
    writer = sink.create_writer(writer_context())
    writer.write(RowBatch([1]), 0)
    assert list(writer.prepare_commit()) == []
    writer.close()
    assert sink.create_committer() is None


@pytest.mark.parametrize(
    "source",
    [DataGeneratorSource(str, 10), CollectionSource.of([1, 2], None)],
    ids=["generator", "collection"],
)
def test_a_reader_that_knows_that_there_is_no_more_asks_for_no_more(source):
    """It ends: a split that would be assigned to it would be lost."""
    context, told = FakeReaderContext(), FakeEnumeratorContext()
    enumerator = source.create_enumerator(told)
    enumerator.start()
    enumerator.handle_split_request(0, "host")
    reader = source.create_reader(context)
    reader.start()
    reader.add_splits(told.assigned[0])
    reader.notify_no_more_splits()
    while reader.poll_next() is not ReaderStatus.END_OF_INPUT:
        pass
    assert context.requests == 1
