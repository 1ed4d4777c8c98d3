"""Jobs with blocking edges over two TaskManagers: large results, slow and failing readers, lost and damaged files."""

import errno
import os
from collections import Counter

import pytest

from penstock.common import Row, Time, Types, WatermarkStrategy
from penstock.datastream import CoMapFunction
from penstock.datastream.connectors import NumberSequenceSource
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.engine.model.errors import JobExecutionError
from tests.tools.programs.blocking_programs import (
    BATCH,
    NETWORK_BYTES,
    RECORDS,
    SHARED,
    WAIT_S,
    Consumer,
    Producer,
    blocking_environment,
    cut_the_files_short,
    number_of,
)
from tests.tools.programs.counting_sink import CountingSink
from tests.tools.programs.user_functions import SecondIsTime, first_of, running_sum

KINDS = ["file", "auto", "mmap"]


def everything(*names) -> Counter:
    return Counter({(name, number): 1 for name in names for number in range(RECORDS)})


def blocking_stream(env):
    numbers = env.from_collection(range(RECORDS), Types.LONG()).rebalance()
    return numbers.map(Producer()).with_exchange_mode(BATCH).key_by(number_of)


def wait_for_the_other(_subtask, _attempt, count) -> None:
    """Half of the way quickly, then not before the fast one has finished."""
    if count == RECORDS // 8:
        assert SHARED.fast_is_done.wait(WAIT_S)


def fail_half_way(subtask, attempt, count) -> None:
    if (subtask, attempt, count) == (1, 1, RECORDS // 4):
        raise ValueError("cut off half-way")


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_far_above_the_network_memory_is_read_at_any_speed_and_again(tmp_path, kind):
    env, _ = blocking_environment(tmp_path, kind)
    totals = CountingSink()
    made = blocking_stream(env)
    made.map(Consumer("fast")).sink_to(totals)
    made.map(Consumer("slow", wait_for_the_other)).sink_to(totals)
    made.map(Consumer("failing", fail_half_way)).sink_to(totals)
    env.execute("blocking")
    assert totals.total == everything("fast", "slow", "failing")
    assert SHARED.largest > 4 * NETWORK_BYTES
    assert SHARED.opened == {
        ("producer", 0): 1, ("producer", 1): 1,  # what they made was read again, not made again
        ("fast", 0): 1, ("fast", 1): 1, ("slow", 0): 1, ("slow", 1): 1,
        ("failing", 0): 1, ("failing", 1): 2,  # the other subtask is another region
    }  # fmt: skip
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_that_was_cut_short_is_made_anew(tmp_path, kind):
    env, _ = blocking_environment(tmp_path, kind)
    totals = CountingSink()
    blocking_stream(env).map(Consumer("reader", is_cut_off=True)).sink_to(totals)
    env.execute("cut short")
    assert totals.total == everything("reader")
    assert SHARED.opened["producer", 0] + SHARED.opened["producer", 1] >= 3
    assert os.listdir(tmp_path) == []


def cut_while_reading(subtask, attempt, count) -> None:
    if (subtask, attempt, count) == (0, 1, 1):
        cut_the_files_short()


def test_a_file_that_is_cut_short_while_it_is_read_is_made_anew(tmp_path):
    env, _ = blocking_environment(tmp_path)
    totals = CountingSink()
    blocking_stream(env).map(Consumer("reader", cut_while_reading)).sink_to(totals)
    env.execute("cut short")
    assert totals.total == everything("reader")
    assert SHARED.opened["producer", 0] + SHARED.opened["producer", 1] >= 3


def test_a_full_disk_fails_the_job_and_says_so(tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "writev", full)
    env, _ = blocking_environment(tmp_path, **{"restart-strategy_type": "none"})
    blocking_stream(env).map(Consumer("reader")).sink_to(CountingSink())
    with pytest.raises(JobExecutionError) as caught:
        env.execute("full")
    text = str(caught.value)
    assert "No space left on device" in text
    assert "io.tmp.dirs" in text
    assert "in task:     Map" in text
    assert ("reader", 0) not in SHARED.opened
    assert os.listdir(tmp_path) == []


def test_a_directory_that_cannot_be_made_fails_the_job_and_says_so(tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    env, _ = blocking_environment(in_the_way / "below", **{"restart-strategy_type": "none"})
    blocking_stream(env).map(Consumer("reader")).sink_to(CountingSink())
    with pytest.raises(JobExecutionError, match=r"no directory can be made in .*io\.tmp\.dirs"):
        env.execute("nowhere")


def hold(_subtask, attempt, count) -> None:
    if (attempt, count) == (1, 1):
        SHARED.started.set()
        assert SHARED.go_on.wait(WAIT_S)


def test_results_that_are_lost_with_their_taskmanager_are_made_anew(tmp_path):
    env, cluster = blocking_environment(tmp_path)
    totals = CountingSink()
    source = NumberSequenceSource(0, RECORDS - 1)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    made = numbers.map(Producer()).with_exchange_mode(BATCH)  # each subtask is a region
    made.key_by(number_of).map(Consumer("reader", hold)).sink_to(totals)
    job = env.execute_async("lost")
    try:
        assert SHARED.started.wait(WAIT_S)
        provider = cluster.last_provider
        lost = next(iter(provider.managers))
        provider.stop(lost)
    finally:
        SHARED.go_on.set()
    job.get_job_execution_result().result()
    assert totals.total == everything("reader")
    producers = [SHARED.opened["producer", subtask] for subtask in range(2)]
    assert sorted(producers) == [1, 2]  # one of two lay there
    assert os.listdir(tmp_path) == []


def windowed(env, mode):
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondIsTime())
    events = [(f"key {n % 3}", n * 10) for n in range(1000)]
    stream = env.from_collection(events).assign_timestamps_and_watermarks(in_order)
    if mode is not None:
        stream = stream.with_exchange_mode(mode)
    sums = stream.key_by(first_of).window(TumblingEventTimeWindows.of(Time.seconds(1)))
    with sums.reduce(running_sum).execute_and_collect("windows") as results:
        return sorted(results)


def test_event_time_goes_through_a_blocking_edge_as_through_another(tmp_path):
    pipelined = windowed(blocking_environment(tmp_path)[0], None)
    assert len(pipelined) == 30
    assert windowed(blocking_environment(tmp_path)[0], BATCH) == pipelined


def key_of(row):
    return row.key


def same(row):
    return row


class Both(CoMapFunction):
    """Says which input a value came by."""

    def map1(self, value):
        return "all", value

    def map2(self, value):
        return "even", value


def even(value) -> bool:
    return value % 2 == 0


def test_one_operator_may_read_a_blocking_and_a_pipelined_edge_of_one_region(tmp_path):
    env, _ = blocking_environment(tmp_path)
    totals = CountingSink()
    numbers = env.from_collection(range(1000), Types.LONG()).rebalance().map(abs)
    evens = numbers.filter(even).disable_chaining().with_exchange_mode(BATCH).rebalance()
    numbers.rebalance().connect(evens).map(Both()).sink_to(totals)
    env.execute("mixed")
    expected = [("all", n) for n in range(1000)] + [("even", n) for n in range(0, 1000, 2)]
    assert totals.total == Counter(expected)


def test_blocking_and_pipelined_streams_make_a_union(tmp_path):
    env, _ = blocking_environment(tmp_path)
    totals = CountingSink()
    first = env.from_collection(range(100)).map(abs).with_exchange_mode(BATCH).rebalance()
    second = env.from_collection(range(100, 200)).map(abs).rebalance()
    first.union(second).map(str).sink_to(totals)
    env.execute("union")
    assert totals.total == Counter(map(str, range(200)))


def keyed_and_broadcast(env):
    """Over blocking edges: records by key, as columns of a declared type, and to all subtasks."""
    pairs = Types.ROW_NAMED(["key", "number"], [Types.STRING(), Types.LONG()])
    rows = [Row(key=f"key {n % 7}", number=n) for n in range(2000)]
    numbers = env.from_collection(rows, pairs).rebalance().map(same, pairs)
    keyed = numbers.with_exchange_mode(BATCH).key_by(key_of)
    everywhere = env.from_collection(range(50)).map(abs).with_exchange_mode(BATCH).broadcast()
    texts = keyed.map(str).union(everywhere.map(str)).with_exchange_mode(BATCH).rebalance()
    with texts.map(str.upper).execute_and_collect("both kinds") as results:
        return Counter(results)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_by_key_and_broadcast_records_go_through_blocking_edges(tmp_path, kind):
    found = keyed_and_broadcast(blocking_environment(tmp_path, kind)[0])
    rows = Counter(f"ROW(KEY='KEY {n % 7}', NUMBER={n})" for n in range(2000))
    assert found == rows + Counter({str(n): 2 for n in range(50)})
    assert os.listdir(tmp_path) == []
