"""HybridSource: Flink reads each source to its end in all subtasks before any begins with the next."""

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.api.base import Boundedness, SourceReaderBase
from penstock.connectors.file_system import FileSource, StreamFormat
from penstock.connectors.hybrid_source import (
    FINISHED,
    HybridSource,
    HybridSplit,
    NoMoreOf,
    SwitchTo,
)
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import NumberSequenceSource
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.spark.batch.job import splits_of
from penstock.engine.model.errors import ConfigurationError, GraphError
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.sources.contract import ReaderStatus, SplitBatch, SplitFinished
from tests.tools.brokers.kafka_topics import bounded, produce
from tests.tools.connectors.played_by_hand import (
    FakeEnumeratorContext,
    FakeReaderContext,
    all_values,
    run_source,
    serve,
    values,
)


def lines(path, name, *texts):
    file = path / name
    file.write_text("".join(f"{text}\n" for text in texts))
    return FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(file)).build()


def numbers(*bounds):
    builder = HybridSource.builder(NumberSequenceSource(*bounds[0]))
    for start, stop in bounds[1:]:
        builder.add_source(NumberSequenceSource(start, stop))
    return builder.build()


class Stage:
    """An enumerator and its readers, moved by hand."""

    def __init__(self, source, parallelism=2, enumerator_state=None, reader_states=()):
        self.source = source
        self.driver = FakeEnumeratorContext(parallelism)
        if enumerator_state is None:
            self.enumerator = source.create_enumerator(self.driver)
        else:
            self.enumerator = source.restore_enumerator(self.driver, enumerator_state)
        self.enumerator.start()
        self.contexts = [FakeReaderContext(one, parallelism) for one in range(parallelism)]
        self.readers = [None] * parallelism
        self.ended = set()
        for subtask in range(parallelism):
            self.begin(subtask, reader_states[subtask] if reader_states else ())

    def begin(self, subtask, splits=()):
        """A new attempt with these splits."""
        context = self.contexts[subtask] = FakeReaderContext(subtask, len(self.contexts))
        reader = self.readers[subtask] = self.source.create_reader(context)
        self.driver.no_more.discard(subtask)
        self.driver.assigned[subtask].clear()  # what was on its way to the attempt before
        if splits:
            reader.add_splits(splits)
        self.enumerator.add_reader(subtask)
        reader.start()

    def turn(self, subtask):
        """Values of one poll."""
        reader = self.readers[subtask]
        self.serve(subtask)
        polled = reader.poll_next()
        while isinstance(polled, SplitFinished):
            polled = reader.poll_next()
        self.serve(subtask)
        if polled is ReaderStatus.END_OF_INPUT:
            self.ended.add(subtask)
        return values(polled.batch) if isinstance(polled, SplitBatch) else []

    def serve(self, subtask, times=1):
        for _ in range(times):
            serve(self.driver, self.enumerator, self.contexts[subtask], self.readers[subtask])

    def share_first_source(self):
        """Each reader has a split of it."""
        for subtask in range(len(self.readers)):
            self.serve(subtask, times=2)

    def of_first_source(self, subtask):
        """What this reader reads of it, until it has to wait or the next source is there."""
        found = []
        for _ in range(20):
            if self.enumerator.index == 0:
                found += self.turn(subtask)
        return found

    def rest(self):
        """All that is still to come, the subtasks taking turns."""
        found = []
        for _ in range(10_000):
            for subtask in {*range(len(self.readers))} - self.ended:
                found += self.turn(subtask)
            if len(self.ended) == len(self.readers):
                return found
        raise AssertionError("the source does not end")


@pytest.mark.parametrize("parallelism", [1, 3])
def test_sources_are_read_one_after_the_other(tmp_path, parallelism):
    source = (
        HybridSource
        .builder(lines(tmp_path, "a", *"abc"))
        .add_source(lines(tmp_path, "none"))
        .add_source(lines(tmp_path, "b", *"def"))
        .build()
    )
    assert source.boundedness is Boundedness.BOUNDED
    assert source.produced_type == Types.STRING()
    assert sorted(all_values(run_source(source, parallelism))) == list("abcdef")


def test_no_subtask_begins_with_the_next_source_before_all_have_ended_with_this_one():
    stage = Stage(numbers((1, 10), (11, 20)))
    stage.share_first_source()
    assert stage.of_first_source(0) == [1, 2, 3, 4, 5]
    assert stage.turn(0) == []
    assert stage.of_first_source(1) == [6, 7, 8, 9, 10]
    assert sorted(stage.rest()) == [*range(11, 21)]


@pytest.mark.parametrize("turns", range(9))
def test_a_checkpoint_at_any_moment_is_gone_on_from_exactly(turns):
    source = numbers((1, 5), (6, 10), (11, 12))
    stage = Stage(source)
    before = [value for _ in range(turns) for one in (0, 1) for value in stage.turn(one)]
    state = stage.enumerator.snapshot_state()
    positions = [list(reader.snapshot_state()) for reader in stage.readers]
    assert all(isinstance(one, HybridSplit) for splits in positions for one in splits)
    again = Stage(source, 2, state, positions)
    assert sorted(before + again.rest()) == [*range(1, 13)]
    fewer = Stage(source, 1, state, [positions[0] + positions[1]])
    assert sorted(before + fewer.rest()) == [*range(1, 13)]
    more = Stage(source, 3, state, [*positions, []])
    assert sorted(before + more.rest()) == [*range(1, 13)]


def test_a_subtask_that_begins_again_reads_what_it_had_of_a_source_before():
    stage = Stage(numbers((1, 4), (5, 8)))
    stage.share_first_source()
    given = stage.readers[1].snapshot_state()
    assert stage.of_first_source(1) == [3, 4]
    kept = stage.of_first_source(0)
    assert stage.enumerator.index == 1
    # Its attempt is lost, with all that it was given since the last checkpoint.
    stage.enumerator.add_splits_back([NoMoreOf(0), *given, SwitchTo(1)], 1)
    assert sorted(kept + again(stage, 1).rest()) == [*range(1, 9)]


def test_a_subtask_that_was_restored_with_a_source_before_catches_up():
    stage = Stage(numbers((1, 4), (5, 8)))
    stage.share_first_source()
    position = stage.readers[1].snapshot_state()
    assert stage.of_first_source(1) == [3, 4]
    kept = stage.of_first_source(0)
    assert sorted(kept + again(stage, 1, position).rest()) == [*range(1, 9)]


def again(stage, subtask, splits=()):
    stage.begin(subtask, splits)
    return stage


def test_a_finished_reader_that_begins_again_is_waited_for():
    stage = Stage(numbers((1, 4), (5, 8)))
    stage.of_first_source(0)
    stage.enumerator.add_reader(0)  # of a new attempt, which has said nothing yet
    stage.of_first_source(1)
    assert stage.enumerator.index == 0
    stage.begin(0)
    stage.rest()
    assert stage.enumerator.index == 1


def test_a_batch_job_shares_all_splits_out_in_order(tmp_path):
    source = numbers((1, 4), (5, 8)).in_batch()
    splits = splits_of(source, "numbers", 2)
    assert [[one.index for one in part] for part in splits] == [[0, 1], [0, 1]]
    found = []
    for subtask, part in enumerate(splits):
        reader = source.create_reader(FakeReaderContext(subtask, 2))
        reader.start()
        reader.add_splits(part)
        reader.notify_no_more_splits()
        while (polled := reader.poll_next()) is not ReaderStatus.END_OF_INPUT:
            assert polled is not ReaderStatus.NOTHING_AVAILABLE
            if isinstance(polled, SplitBatch):
                found += values(polled.batch)
    assert sorted(found) == [*range(1, 9)]
    empty = HybridSource.builder(lines(tmp_path, "none")).add_source(lines(tmp_path, "a", "x"))
    assert len(splits_of(empty.build(), "lines", 2)) == 2


def test_a_reader_without_sources_left_or_told_says_so_to_nobody_twice():
    context = FakeReaderContext()
    reader = numbers((1, 2), (3, 4)).create_reader(context)
    reader.start()
    assert list(context.events) == [(FINISHED, -1)]
    assert reader.poll_next() is ReaderStatus.NOTHING_AVAILABLE
    reader.notify_no_more_splits()
    assert reader.poll_next() is ReaderStatus.END_OF_INPUT


class OneShot(NumberSequenceSource):
    """Read on a fetcher's thread; never says that its splits are finished."""

    def create_reader(self, context):
        return _OneShotReader(context)


class _OneShotReader(SourceReaderBase):
    def create_split_reader(self):
        raise AssertionError("gets no splits in this test")

    def split_id(self, split):
        return "only"

    def add_splits(self, splits):
        self._given = list(splits)
        self.told = []

    def before_checkpoint(self, checkpoint_id):
        self.told.append(("before", checkpoint_id))

    def notify_checkpoint_complete(self, checkpoint_id):
        self.told.append(("complete", checkpoint_id))

    def poll_next(self):
        if self._given:
            self._given.pop()
            return SplitBatch(RowBatch([0]), "only")
        return ReaderStatus.END_OF_INPUT


def test_splits_of_a_source_that_is_over_hold_no_watermark_back():
    source = HybridSource([OneShot(1, 1), NumberSequenceSource(2, 2)])
    reader = source.create_reader(FakeReaderContext())
    reader.start()
    reader.add_splits([HybridSplit(0, "s")])
    assert reader.split_ids([HybridSplit(0, "s"), HybridSplit(1, "t")]) == [(0, "only")]
    assert reader.poll_next().split_id == (0, "only")
    reader.before_checkpoint(7)
    reader.notify_checkpoint_complete(7)
    assert reader._inner.told == [("before", 7), ("complete", 7)]
    assert reader.poll_next() == SplitFinished((0, "only"))
    reader.pause_or_resume_splits([(0, "only")], [])


def test_a_job_reads_history_from_files_and_then_kafka(broker, tmp_path):
    broker.create("live", 2)
    for partition in range(2):
        produce(broker, "live", f"live {partition}", "more", partition=partition)
    history = lines(tmp_path, "history", "old", "older")
    source = HybridSource.builder(history).add_source(bounded(broker.servers, "live").build())
    env = StreamExecutionEnvironment.get_execution_environment()
    env.use_executor(MiniCluster(parallelism=2).executor()).enable_checkpointing(20)
    stream = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "both")
    with stream.execute_and_collect("history, then live") as results:
        assert sorted(results) == ["live 0", "live 1", "more", "more", "old", "older"]


def test_wrong_sources_are_refused(tmp_path):
    endless = (
        FileSource
        .for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
        .monitor_continuously(_Soon())
        .build()
    )
    with pytest.raises(ConfigurationError, match="source 1 .* has no end"):
        HybridSource.builder(endless).add_source(endless)
    last = HybridSource.builder(lines(tmp_path, "a", "x")).add_source(endless).build()
    assert last.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    with pytest.raises(GraphError, match="no end"):
        splits_of(last, "lines", 1)
    with pytest.raises(
        ConfigurationError, match="the same type of records, but source 1 has String"
    ):
        HybridSource.builder(lines(tmp_path, "a", "x")).add_source(NumberSequenceSource(1, 2))
    with pytest.raises(TypeError, match="takes Sources"):
        HybridSource.builder("a")
    with pytest.raises(ConfigurationError, match="does not exist"):
        form = StreamFormat.text_line_format()
        gone = FileSource.for_record_stream_format(form, str(tmp_path / "gone")).build()
        HybridSource.builder(gone).build().validate()


class _Soon:
    def to_millis(self):
        return 10
