"""Sort-merge results: one file for all subpartitions, each of which reads what a file of its own would have given it."""

import errno
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.model.errors import EngineBug, ResultDataLost, ResultWriteError
from penstock.runtime.elements import (
    ColumnBatch,
    EndOfData,
    EndOfPartition,
    LatencyMarker,
    RowBatch,
    Watermark,
)
from penstock.runtime.network.partition.bounded_data import FileData
from penstock.runtime.network.partition.buffer_builder import BlockingFormat, SortMerge
from penstock.runtime.network.partition.result_partition import blocking_partition
from tests.tools.runtime.partitions import (
    SORT_MERGE,
    ViewListener,
    blocking,
    drained_view,
    result_partition_id,
    views_of,
)

END = [EndOfPartition()]
ROOT = Path(__file__).parents[5]


def sort_merge(folder, subpartitions=3, **given_sizes):
    return blocking(folder, SORT_MERGE, subpartitions=subpartitions, **given_sizes)


def write_to_all(part, batch) -> None:
    for writer in part.everyone:
        writer.write(batch)


def flat(elements) -> list:
    """Records with their timestamps, and events, whichever batches they came in."""
    found: list = []
    for element in elements:
        if not isinstance(element, RowBatch | ColumnBatch):
            found.append(element)
            continue
        is_rows = isinstance(element, RowBatch)
        values = element.values if is_rows else element.data.to_pylist()
        stamps = element.timestamps
        stamps = [None] * len(values) if stamps is None else stamps.tolist()
        # Joined with others that have timestamps, a record without one has the smallest.
        found += [(v, None if t == -(2**63) else t) for v, t in zip(values, stamps, strict=True)]
    return found


def read(part) -> list[list]:
    views = views_of(part)
    try:
        return [flat(drained_view(view)) for view in views]
    finally:
        for view in views:
            view.release()


def only(*values) -> list:
    return [(value, None) for value in values]


def test_there_are_two_files_however_many_subpartitions_and_regions(tmp_path):
    part = sort_merge(tmp_path, 50, sort_bytes=2000)
    for number in range(500):
        part.subpartitions[number % 50].write(RowBatch([os.urandom(50)]))
    part.finish()
    assert sorted(os.listdir(tmp_path)) == ["part-0", "part-1"]
    assert [len(found) for found in read(part)] == [11] * 50
    part.release()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("subpartitions", "is_sort_merge"), [(1, False), (2, True), (3, True)])
def test_a_result_with_few_subpartitions_has_a_file_for_each(
    tmp_path, subpartitions, is_sort_merge
):
    paths = (str(tmp_path / str(number)) for number in range(9))
    settings_of_it = SortMerge(lambda: next(paths), min_parallelism=2)
    form = BlockingFormat(pickle.dumps, pickle.loads, 1000, 1000, None, settings_of_it)
    part = blocking_partition(
        result_partition_id(), subpartitions, lambda: FileData(next(paths)), form
    )
    assert (part.sort_merge is not None) == is_sort_merge
    assert len(part.subpartitions) == subpartitions
    assert len(os.listdir(tmp_path)) == (2 if is_sort_merge else subpartitions)
    part.release()


def test_subpartitions_without_records_and_results_without_any_just_end(tmp_path):
    part = sort_merge(tmp_path)
    part.subpartitions[1].write(RowBatch([]))
    part.subpartitions[2].write(RowBatch(["a"]))
    part.finish()
    assert read(part) == [END, END, only("a") + END]
    assert [sub.records for sub in part.subpartitions] == [0, 0, 1]
    part.release()
    empty = sort_merge(tmp_path)
    empty.finish()
    assert read(empty) == [END] * 3
    empty.release()


def test_a_record_larger_than_the_buffer_goes_through(tmp_path):
    part = sort_merge(tmp_path, sort_bytes=100, frame_bytes=50)
    large = os.urandom(10_000)
    values = ["small", large, "after"]
    for value in values:
        part.subpartitions[0].write(RowBatch([value]))
    part.subpartitions[1].write(RowBatch([large, "with it"]))
    part.finish()
    assert read(part) == [only(*values) + END, only(large, "with it") + END, END]
    part.release()


def test_what_all_get_is_stored_once(tmp_path):
    part = sort_merge(tmp_path, 100, codec=None, buffer=4096)
    large = os.urandom(100_000)
    write_to_all(part, RowBatch([large]))
    part.notify_end_of_data(EndOfData())
    part.finish()
    assert os.stat(tmp_path / "part-0").st_size < 110_000
    assert read(part) == [[*only(large), EndOfData(), *END]] * 100
    assert [sub.records for sub in part.subpartitions] == [1] * 100
    part.release()


def test_events_for_all_stand_where_they_were_written(tmp_path):
    part = sort_merge(tmp_path)
    marker = LatencyMarker(1, "op", 0)
    part.broadcast_event(Watermark(1))
    part.subpartitions[0].write(RowBatch(["a"]))
    part.broadcast_event(Watermark(2))
    part.subpartitions[1].write(RowBatch(["b"]))
    part.subpartitions[1].add(marker)
    part.broadcast_event(Watermark(3))
    part.finish()
    one, two, three = Watermark(1), Watermark(2), Watermark(3)
    assert read(part) == [
        [one, *only("a"), two, three, *END],
        [one, two, *only("b"), marker, three, *END],
        [one, two, three, *END],
    ]
    part.release()


def test_a_view_counts_the_frames_of_its_own_and_those_of_all(tmp_path):
    part = sort_merge(tmp_path, 2)
    for value in ("a", "b"):
        part.subpartitions[0].add_frame(RowBatch([value]), is_finished=True)
    write_to_all(part, RowBatch(["all"]))
    part.finish()
    views = views_of(part)
    backlogs = [[polled.backlog for polled in iter(view.poll, None)] for view in views]
    assert backlogs == [[2, 1, 0, 0], [0, 0]]
    for view in views:
        view.release()
    part.release()


def test_columns_have_their_schema_wherever_shared_ones_stand_between(tmp_path):
    part = sort_merge(tmp_path, 2)
    one, other = pa.record_batch({"a": [1]}), pa.record_batch({"b": ["x"]})
    for _ in range(2):
        part.subpartitions[0].write(ColumnBatch(one))
        write_to_all(part, ColumnBatch(other))
        part.subpartitions[1].write(ColumnBatch(one))
    part.finish()
    a, b = ({"a": 1}, None), ({"b": "x"}, None)
    assert read(part) == [[a, b, a, b, *END], [b, a, b, a, *END]]
    part.release()


def test_the_files_stay_while_any_subpartition_is_read(tmp_path):
    part = sort_merge(tmp_path, 2)
    for sub in part.subpartitions:
        sub.add_frame(RowBatch(["a"]), is_finished=True)
    part.finish()
    one, two = views_of(part)
    part.release()
    one.release()
    assert len(os.listdir(tmp_path)) == 2
    assert flat(drained_view(two)) == only("a") + END
    two.release()
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_said_to_be_one(tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    part = sort_merge(tmp_path, sort_bytes=100)
    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(ResultWriteError, match=r"No space left on device.*io\.tmp\.dirs"):
        part.subpartitions[0].write(RowBatch([os.urandom(200)]))
    part.release()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["part-0", "part-1"])
def test_if_a_file_cannot_be_made_none_is_left(tmp_path, name):
    (tmp_path / name).write_text("in the way")
    with pytest.raises(ResultWriteError):
        sort_merge(tmp_path)
    assert os.listdir(tmp_path) == [name]


def spoilt(path, how: str) -> None:
    if how == "cut":
        os.truncate(path, 20)
    elif how == "gone":
        os.unlink(path)
    else:
        copy = path.with_name("copy")
        copy.write_bytes(path.read_bytes())
        copy.rename(path)


@pytest.mark.parametrize("how", ["cut", "gone", "another"])
@pytest.mark.parametrize("name", ["part-0", "part-1"])
def test_a_spoilt_file_names_the_partition_that_has_to_be_made_anew(tmp_path, name, how):
    part = sort_merge(tmp_path, 2, sort_bytes=100, frame_bytes=100, codec=None)
    for number in range(20):
        part.subpartitions[number % 2].write(RowBatch([os.urandom(100)]))
    part.finish()
    view = part.create_view(1, ViewListener())
    spoilt(tmp_path / name, how)
    for action in (lambda: drained_view(view), lambda: part.create_view(1, ViewListener())):
        with pytest.raises(ResultDataLost) as caught:
            action()
        assert caught.value.partition_id == part.partition_id
    view.release()
    part.release()


def test_a_release_while_a_region_is_written_leaves_no_file_and_no_error(tmp_path):
    part = sort_merge(tmp_path, 2, sort_bytes=100)

    class Releases:
        """Is pickled while its region is encoded."""

        def __reduce__(self):
            part.release()
            return (str, ())

    part.subpartitions[0].write(RowBatch(["x" * 50]))
    part.subpartitions[1].write(RowBatch([Releases(), os.urandom(100)]))
    part.subpartitions[0].write(RowBatch(["late"]))
    assert os.listdir(tmp_path) == []
    with pytest.raises(EngineBug, match="released already"):
        part.subpartitions[0].finish()


@pytest.mark.parametrize(
    ("subtasks", "descriptors", "step"),
    [(300, 128, 10), pytest.param(2000, 1024, 20, marks=pytest.mark.long)],
)
def test_as_many_consumers_as_producers_need_few_descriptors(tmp_path, subtasks, descriptors, step):
    """In a process of its own, because a limit cannot be raised again."""
    module = "tests.tools.programs.wide_shuffle"
    given_to_it = (str(subtasks), str(descriptors), str(tmp_path), str(step))
    command = [sys.executable, "-m", module, *given_to_it]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == f"{2 * subtasks} files, 0 left\n", done.stderr


COLUMNS = [
    pa.record_batch({"a": pa.array([1, 2, None])}),
    pa.record_batch({"b": pa.array(["x", "y" * 50, ""]), "c": pa.array([0.5, None, 2.0])}),
    pa.record_batch({"d": pa.array(["p", "q", "p"]).dictionary_encode()}),
]
ROWS = st.builds(
    lambda values, has_stamps: RowBatch(
        values, np.arange(len(values), dtype=np.int64) if has_stamps else None
    ),
    st.lists(st.integers() | st.text(max_size=40), max_size=6),
    st.booleans(),
)
BATCHES = ROWS | st.sampled_from(COLUMNS).map(ColumnBatch)
EVENTS = st.integers(0, 9).map(Watermark)
WHERE = st.integers(0, 3) | st.none()
"""Of four subpartitions; None: all."""
ELEMENTS = st.lists(st.tuples(WHERE, BATCHES | EVENTS), max_size=25)


def write(part, where, element) -> None:
    is_event = isinstance(element, Watermark)
    if where is not None:
        sub = part.subpartitions[where]
        _ = sub.add(element) if is_event else sub.write(element)
    elif is_event:
        part.broadcast_event(element)
    else:
        write_to_all(part, element)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(
    elements=ELEMENTS,
    sort_bytes=st.sampled_from([1, 500, 3000, 1 << 20]),
    frame_bytes=st.sampled_from([64, 2000, 1 << 20]),
    codec=st.sampled_from([None, "LZ4", "ZSTD"]),
    turns=st.lists(st.integers(0, 7), max_size=40),
)
def test_each_subpartition_reads_what_a_file_of_its_own_would_have_given_it(
    tmp_path, elements, sort_bytes, frame_bytes, codec, turns
):
    hashed = blocking(tmp_path, FileData, codec, 4, frame_bytes)
    os.makedirs(tmp_path / "sorted", exist_ok=True)
    part = sort_merge(
        tmp_path / "sorted", 4, codec=codec, frame_bytes=frame_bytes, sort_bytes=sort_bytes
    )
    for where, element in elements:
        write(hashed, where, element)
        write(part, where, element)
    counts = [[sub.records for sub in one.subpartitions] for one in (hashed, part)]
    assert counts[0] == counts[1]
    for one in (hashed, part):
        one.finish()
    expected = read(hashed)
    hashed.release()
    views = views_of(part) + views_of(part)
    got: list[list] = [[] for _ in views]
    for turn in turns:
        polled = views[turn].poll()
        got[turn] += [] if polled is None else [polled.element]
    for place, view in enumerate(views):
        got[place] += drained_view(view)
        view.release()
    assert [flat(one) for one in got] == expected * 2
    part.release()
    assert os.listdir(tmp_path / "sorted") == []
