"""What a keyed subtask reads: in memory or on disk, each key in one bucket, in the order of time; nothing stays behind."""

import os
import tempfile
from collections import Counter
from itertools import groupby

import numpy as np
import pytest

from penstock.common import Types
from penstock.datastream import KeyedBroadcastProcessFunction, KeyedProcessFunction
from penstock.datastream.state import MapStateDescriptor
from penstock.engine.hosting.os.private_files import NotPrivate
from penstock.engine.hosting.spark.batch.key_spool import (
    BUCKETS,
    HeldRecords,
    IndexedFile,
    KeySpool,
    RecordFile,
)
from penstock.engine.hosting.spark.batch.shuffle_records import RecordBuilder
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.keys import KeySelection
from tests.tools.permissions import mode, open_to_others, umask
from tests.tools.programs.environments import batch_environment, collected


def test_records_are_read_as_often_as_one_likes(tmp_path):
    made = RecordFile(*tempfile.mkstemp(dir=tmp_path))
    for record in (b"one", b"", b"three"):
        made.write(record)
    assert list(made.read()) == list(made.read()) == [b"one", b"", b"three"]
    made.close()
    assert os.listdir(tmp_path) == []


def test_a_file_in_the_place_of_ours_is_not_read(tmp_path):
    made = RecordFile(*tempfile.mkstemp(dir=tmp_path))
    made.write(b"ours")
    made.finish()
    (path,) = tmp_path.iterdir()
    (tmp_path / "other").write_bytes(b"\0\0\0\6theirs")
    (tmp_path / "other").replace(path)
    with pytest.raises(NotPrivate, match="not the file any more"):
        list(made.read())


def test_held_records_come_back_in_order_from_memory_and_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with umask(0):
        held = HeldRecords(memory=5)
        for record in (b"one", b"two", b"three"):
            held.add(record)
    assert len(os.listdir(tmp_path)) == 1
    assert open_to_others(tmp_path) == {}
    assert list(held.take()) == [b"one", b"two", b"three"]
    assert os.listdir(tmp_path) == []


def test_numbered_streams_are_this_users_alone(tmp_path):
    with umask(0):
        made = IndexedFile(str(tmp_path / "file"))
    made.write(1, b"one")
    made.write(2, b"two")
    made.write(1, b"three")
    assert (list(made.read(1)), list(made.read(2))) == ([b"one", b"three"], [b"two"])
    made.close()
    assert mode(tmp_path / "file") == 0o600


KEYS = 500
ROWS = 200


def key_of(value):
    return value[0]


def records(gate, count, *, is_timed):
    """`count` records of ROWS rows (key, number), with times that fall."""
    for record in range(count):
        numbers = range(record * ROWS, (record + 1) * ROWS)
        rows = [(number * 7919 % KEYS, number) for number in numbers]
        times = np.array([10**6 - number for number in numbers], np.int64) if is_timed else None
        builder = RecordBuilder(gate)
        builder.add(RowBatch(rows, times))
        yield builder.finish()


def flat(pieces):
    """(input, value, time or None) of each record."""
    rows = []
    for input_index, batch in pieces:
        times = [None] * len(batch) if batch.timestamps is None else batch.timestamps.tolist()
        rows += [(input_index, *pair) for pair in zip(batch.values, times, strict=True)]
    return rows


def read(spool):
    """By bucket."""
    return [flat(bucket) for bucket in spool.buckets()]


def both(memory, *, is_by_key):
    return KeySpool(
        (0, 1), (KeySelection(key_of), KeySelection(key_of)), memory, is_by_key=is_by_key
    )


def broadcast_too(memory=1):
    return KeySpool((0, 1), (KeySelection(key_of), None), memory, is_by_key=True)


@pytest.mark.parametrize("is_by_key", [False, True])
@pytest.mark.parametrize("is_timed", [False, True])
@pytest.mark.parametrize("memory", [1 << 30, 20_000, 1])
def test_each_key_is_in_one_bucket_and_in_order(tmp_path, monkeypatch, memory, is_timed, is_by_key):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spool = both(memory, is_by_key=is_by_key)
    expected = Counter()
    for gate, count in ((0, 20), (1, 10)):
        for record in records(gate, count, is_timed=is_timed):
            spool.add(record)
        numbers = range(count * ROWS)
        expected.update((gate, (number * 7919 % KEYS, number)) for number in numbers)
    assert list(spool.for_all()) == []
    is_spilled = bool(os.listdir(tmp_path))
    assert is_spilled == (memory < 1 << 30)
    found = read(spool)
    assert Counter((gate, value) for rows in found for gate, value, _ in rows) == expected
    assert 1 <= len(found) <= BUCKETS
    assert len(found) == 1 or is_spilled
    keys = [{value[0] for _, value, _ in rows} for rows in found]
    assert sum(map(len, keys)) == len(set().union(*keys))
    for rows in found:
        groups = [list(group) for _, group in groupby(rows, lambda row: row[1][0])]
        assert not is_by_key or len(groups) == len({row[1][0] for row in rows})
        for in_time in groups if is_by_key else [rows]:
            times = [time for *_, time in in_time]
            assert times == (sorted(times) if is_timed else [None] * len(times))
    spool.close()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("memory", [1 << 30, 1])
def test_what_has_no_key_comes_first_and_once(tmp_path, monkeypatch, memory):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spool = broadcast_too(memory)
    for record in [*records(0, 5, is_timed=True), *records(1, 1, is_timed=True)]:
        spool.add(record)
    assert [gate for gate, *_ in flat(spool.for_all())] == [1] * ROWS
    is_spilled = bool(os.listdir(tmp_path))
    assert is_spilled == (memory == 1)
    found = read(spool)
    assert not is_spilled or BUCKETS // 2 < len(found) <= BUCKETS  # 500 keys
    assert [gate for rows in found for gate, *_ in rows] == [0] * 5 * ROWS
    spool.close()


def test_what_is_for_all_is_read_also_where_there_are_no_keys():
    spool = broadcast_too()
    for record in records(1, 3, is_timed=False):
        spool.add(record)
    assert [gate for gate, *_ in flat(spool.for_all())] == [1] * 3 * ROWS
    assert read(spool) == []
    spool.close()


OPENED: list = []


class Opened(KeyedProcessFunction):
    def open(self, runtime_context):
        OPENED.append(runtime_context.get_index_of_this_subtask())

    def process_element(self, value, ctx):
        yield value


@pytest.mark.parametrize("memory", ["128 mb", "1 b"])
def test_a_function_is_opened_once_also_when_its_input_goes_to_disk(memory):
    OPENED.clear()
    env = batch_environment().set_parallelism(2)
    env.get_configuration().set_string("execution.sorted-inputs.memory", memory)
    values = [(number % KEYS, number) for number in range(2000)]
    stream = env.from_collection(values, Types.TUPLE([Types.LONG(), Types.LONG()]))
    found = collected(stream.key_by(key_of, Types.LONG()).process(Opened()))
    assert Counter(found) == Counter(values)
    assert sorted(OPENED) == [0, 1]


RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class Ruled(KeyedBroadcastProcessFunction):
    """Tells of each rule, and of each record what all rules add to it."""

    def process_element(self, value, ctx):
        rules = ctx.get_broadcast_state(RULES)
        yield "value", value[1] + sum(rules.values())

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(str(value), value)
        yield "rule", value


@pytest.mark.parametrize("memory", ["128 mb", "1 b"])
def test_what_is_broadcast_is_known_for_all_keys_and_counts_once(memory):
    env = batch_environment().set_parallelism(2)
    env.get_configuration().set_string("execution.sorted-inputs.memory", memory)
    values = [(number % KEYS, number) for number in range(2000)]
    stream = env.from_collection(values, Types.TUPLE([Types.LONG(), Types.LONG()]))
    rules = env.from_collection([10, 20, 30], Types.LONG()).broadcast(RULES)
    found = stream.key_by(key_of, Types.LONG()).connect(rules).process(Ruled())
    collected = found.execute_and_collect()
    with collected as rows:
        results = Counter(rows)
    assert results == Counter({("rule", rule): 2 for rule in (10, 20, 30)}) + Counter(
        ("value", number + 60) for number in range(2000)
    )
    metrics = collected.get_job_client().get_task_metrics().result()
    # Of both inputs each record once.
    assert sum(io.records_in for name, _, io in metrics if "Source" not in name) == 2000 + 2 * 3
