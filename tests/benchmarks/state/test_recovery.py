"""How the benchmark of recovery reads its marks."""

from benchmarks.measures.state.recovery import _again, _marks, _since, percentile
from benchmarks.workloads.recovery_job import MarkingSink
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.sink import WriterContext


def writer(sink, subtask, attempt):
    return sink.create_writer(WriterContext(subtask, 2, attempt, "job", "attempt", None))


def test_the_first_record_and_the_first_commit_of_each_attempt_leave_a_mark(tmp_path):
    sink = MarkingSink(str(tmp_path))
    committer = sink.create_committer()
    for subtask in range(2):
        one = writer(sink, subtask, attempt=1)
        assert one.prepare_commit() == []
        one.write(RowBatch([1]), 0)
        at_ns = _marks(str(tmp_path), "written")[subtask, 1]
        one.write(RowBatch([2]), 0)
        assert _marks(str(tmp_path), "written")[subtask, 1] == at_ns
        committer.commit(one.prepare_commit())
    written, committed = (_marks(str(tmp_path), kind) for kind in ("written", "committed"))
    assert written.keys() == committed.keys() == {(0, 1), (1, 1)}
    assert all(written[place] < committed[place] for place in written)
    assert _again(str(tmp_path), "written", 0) == max(written.values())
    assert _since(str(tmp_path), "written", 1) == []


def test_the_newest_attempt_of_each_subtask_counts(tmp_path):
    for name, at_ns in {"written-0-1": 5, "written-0-2": 7, "written-1-2": 6}.items():
        (tmp_path / name).write_text(str(at_ns))
    assert sorted(_since(str(tmp_path), "written", 0)) == [6, 7]
    assert sorted(_since(str(tmp_path), "written", 1)) == [6, 7]


def test_a_percentile_is_one_of_the_values():
    values = list(range(1, 101))
    assert percentile(values, 0.99) == 99
    assert percentile(values[:20], 0.99) == 20
    assert percentile([3.0], 0.99) == 3.0
