"""A global committer. Expectations: docs/spec/sources-and-sinks.md#writers-and-committers."""

from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.operators import GatheringSink, SinkOperator, WriterOperator
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.sink import Committer, Sink
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.restoring import rescaled


class Numbered(Sink, Committer):
    """Each checkpoint prepares what was written; all of a checkpoint is combined to one committable."""

    has_global_committer = True

    def __init__(self):
        self.written, self.commits = [], []

    def create_writer(self, context):
        return self

    def create_committer(self):
        return self

    def write(self, batch, watermark_ms):
        self.written += batch.values

    def prepare_commit(self):
        prepared, self.written = self.written, []
        return prepared

    def combined(self, context, checkpoint_id, committables):
        return [(context.operator_id, checkpoint_id, sorted(committables))]

    def commit(self, committables):
        self.commits.append(list(committables))

    def abort(self, job_prefix):
        pass

    def close(self):
        pass


def batches(emitted):
    return [one for one in emitted if isinstance(one, RowBatch)]


def test_one_commit_for_a_checkpoint_of_several_writers():
    sink = Numbered()
    committer = OperatorHarness(SinkOperator(GatheringSink(sink)), operator_id="c")
    for subtask in range(2):
        writer = OperatorHarness(WriterOperator(Numbered()), subtask=subtask, parallelism=2)
        writer.feed([subtask, subtask + 10])
        for batch in batches(writer.operator.prepare_snapshot_pre_barrier(1)):
            committer.feed(batch.values)
    committer.take(committer.operator.prepare_snapshot_pre_barrier(1))
    assert sink.commits == []
    committer.operator.notify_checkpoint_complete(1)
    assert sink.commits == [[("c", 1, [0, 1, 10, 11])]]


def test_a_checkpoint_without_output_commits_nothing():
    sink = Numbered()
    writer, committer = WriterOperator(sink), SinkOperator(GatheringSink(sink))
    op, of_committer = OperatorHarness(writer), OperatorHarness(committer)
    assert batches(op.operator.prepare_snapshot_pre_barrier(1)) == []
    of_committer.take(committer.prepare_snapshot_pre_barrier(1))
    committer.notify_checkpoint_complete(1)
    assert sink.commits == []


def test_the_last_output_is_emitted_before_the_end_of_the_data_and_only_once():
    writer = OperatorHarness(WriterOperator(Numbered()), has_final_checkpoint=True)
    writer.feed([1])
    assert [batch.values for batch in batches(writer.operator.finish())] == [[1]]
    assert batches(writer.operator.prepare_snapshot_pre_barrier(2)) == []


def test_without_checkpoints_the_driver_gets_one_committable():
    committer = OperatorHarness(SinkOperator(GatheringSink(Numbered())), operator_id="c")
    committer.feed([2, 1])
    committer.finish()
    assert committer.committables == [("c", None, [1, 2])]


def test_a_restored_committer_commits_what_its_checkpoint_had_prepared():
    first = OperatorHarness(SinkOperator(GatheringSink(Numbered())), operator_id="c")
    first.feed([1])
    first.take(first.operator.prepare_snapshot_pre_barrier(5))
    (restored,) = rescaled([first.operator.snapshot().freeze(plain_dumps)], 1)
    sink = Numbered()
    operator = SinkOperator(GatheringSink(sink))
    operator.restore(restored)
    OperatorHarness(operator, restored_checkpoint_id=5)
    assert sink.commits == [[("c", 5, [1])]]
