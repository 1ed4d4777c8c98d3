"""Whole jobs of a MiniCluster from queue to queue: what fails costs nothing, and with correlation ids doubles nothing that is read."""

import threading
from collections import Counter

import pytest

from penstock.common import WatermarkStrategy
from penstock.connectors.file_system import FileSource, StreamFormat
from penstock.connectors.hybrid_source import HybridSource
from tests.tools.brokers.rabbit_queues import (
    config_builder,
    numbers,
    publish,
    sink_of,
    source_of,
    texts_in,
)
from tests.tools.programs.checkpoint_programs import Watcher, restarting_environment

COUNT = 200
WAIT_S = 30
EVENTS = {}
SEEN = {}


@pytest.fixture
def name(request):
    """What the test and the tasks of its job, in one process, know each other's events by."""
    EVENTS[request.node.name] = threading.Event()
    SEEN[request.node.name] = [], threading.Condition()
    return request.node.name


class FailsAt:
    """At this value, the first time."""

    def __init__(self, name, value):
        self.name, self.value = name, value

    def __call__(self, value):
        event = EVENTS[self.name]
        if value == self.value and not event.is_set():
            event.set()
            raise RuntimeError("planted")
        return value


class Notes:
    """What comes; after a restart also what comes again."""

    def __init__(self, name):
        self.name = name

    def __call__(self, value):
        seen, changed = SEEN[self.name]
        with changed:
            seen.append(value)
            changed.notify_all()
        return value


def wait_until_seen(name, condition):
    seen, changed = SEEN[name]
    with changed:
        assert changed.wait_for(lambda: condition(seen), WAIT_S), f"seen: {len(seen)}"


def checkpointed(watcher, tmp_path, parallelism=1, **more):
    settings = {
        "execution__checkpointing__interval": "50 ms",
        "execution__checkpointing__dir": str(tmp_path / "checkpoints"),
        "restart_strategy__type": "fixed-delay",
        "restart_strategy__fixed_delay__attempts": "5",
        "restart_strategy__fixed_delay__delay": "10 ms",
    }
    return restarting_environment(watcher, parallelism, **settings | more)


def counted(stream):
    """(value, how often it counts in the state) for each message; the last one of a value is what the state has in the end."""
    ones = stream.map(lambda value: (value, 1)).uid("ones")
    return ones.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sum")


def run_until(env, condition):
    client = env.execute_async("rabbit")
    try:
        condition()
    finally:
        client.cancel().result()


def read(env, source, *functions):
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "rabbit").uid("in")
    for number, function in enumerate(functions):
        stream = stream.map(function).uid(f"map {number}")
    return stream


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_failure_in_between_counts_each_message_once(amqp, queue, tmp_path, name, has_ids):
    """Without ids it is the state that goes back: only an acknowledgement that is lost could double something."""
    publish(amqp, queue, *numbers(0, COUNT), has_ids=has_ids)
    watcher = Watcher()
    env = checkpointed(watcher, tmp_path)
    source = source_of(amqp, queue, uses_ids=has_ids)
    counted(read(env, source, FailsAt(name, f"late {COUNT // 2}"))).map(Notes(name)).print()

    def proceed():
        wait_until_seen(name, lambda seen: len(seen) >= COUNT)
        publish(amqp, queue, *[f"late {n}" for n in range(COUNT)], has_ids=has_ids)
        wait_until_seen(name, lambda seen: len(dict(seen)) == 2 * COUNT)

    run_until(env, proceed)
    assert EVENTS[name].is_set()
    counts = dict(SEEN[name][0])
    if has_ids:
        assert set(counts.values()) == {1}
    assert set(counts) == {*numbers(0, COUNT), *(f"late {n}" for n in range(COUNT))}


def test_a_connection_that_breaks_again_and_again_counts_each_message_once(
    amqp, queue, tmp_path, name
):
    env = checkpointed(Watcher(), tmp_path)
    counted(read(env, source_of(amqp, queue))).map(Notes(name)).print()

    def proceed():
        for begin in range(0, 5 * COUNT, COUNT):
            publish(amqp, queue, *numbers(begin, begin + COUNT))
            wait_until_seen(name, lambda seen, least=begin + COUNT // 2: len(dict(seen)) >= least)
            amqp.cut()
        wait_until_seen(name, lambda seen: len(dict(seen)) == 5 * COUNT)

    run_until(env, proceed)
    assert Counter(dict(SEEN[name][0]).values()) == {1: 5 * COUNT}


def test_a_broken_connection_restarts_a_job_without_ids_from_its_checkpoint(
    amqp, queue, tmp_path, name
):
    publish(amqp, queue, *numbers(0, COUNT), has_ids=False)
    watcher = Watcher()
    env = checkpointed(watcher, tmp_path)
    read(env, source_of(amqp, queue, uses_ids=False), Notes(name)).print()

    def proceed():
        wait_until_seen(name, lambda seen: len(seen) >= COUNT)
        amqp.cut()
        publish(amqp, queue, "late", has_ids=False)
        wait_until_seen(name, lambda seen: "late" in seen)

    run_until(env, proceed)
    assert watcher.restored, "it did not restart"
    assert set(SEEN[name][0]) == {*numbers(0, COUNT), "late"}


def test_a_savepoint_is_gone_on_from(amqp, queue, tmp_path, name):
    """What it has read is acknowledged before the job ends."""
    publish(amqp, queue, *numbers(0, COUNT))
    env = checkpointed(Watcher(), tmp_path)
    counted(read(env, source_of(amqp, queue))).map(Notes(name)).print()
    client = env.execute_async("first")
    wait_until_seen(name, lambda seen: len(seen) >= COUNT)
    folder = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    client.get_job_execution_result().result()
    assert texts_in(amqp, queue) == []
    publish(amqp, queue, *numbers(COUNT, 2 * COUNT))
    env = checkpointed(Watcher(), tmp_path, execution__state_recovery__path=folder)
    counted(read(env, source_of(amqp, queue))).map(Notes(name)).print()
    run_until(env, lambda: wait_until_seen(name, lambda seen: len(dict(seen)) == 2 * COUNT))
    assert dict(SEEN[name][0]) == dict.fromkeys(numbers(0, 2 * COUNT), 1)


def test_a_failing_job_writes_each_record_at_least_once(amqp, queue, tmp_path, name):
    env = checkpointed(Watcher(), tmp_path, parallelism=2)
    stream = env.from_collection(numbers(0, COUNT)).map(FailsAt(name, str(COUNT // 2)))
    stream.add_sink(sink_of(amqp, queue))
    env.execute("write")
    assert EVENTS[name].is_set()
    assert set(texts_in(amqp, queue)) == set(numbers(0, COUNT))


def test_a_bounded_job_without_checkpoints_writes_all(amqp, queue):
    env = restarting_environment(Watcher(), 2)
    env.from_collection(numbers(0, COUNT)).sink_to(sink_of(amqp, queue))
    env.execute("write")
    assert sorted(texts_in(amqp, queue)) == sorted(numbers(0, COUNT))


def test_without_checkpoints_a_queue_is_read_by_all_subtasks(amqp, queue, name):
    publish(amqp, queue, *numbers(0, COUNT), has_ids=False)
    env = restarting_environment(Watcher(), 2)
    source = source_of(amqp, queue, uses_ids=False)
    env.add_source(source).set_parallelism(2).map(Notes(name)).print()
    run_until(env, lambda: wait_until_seen(name, lambda seen: len(seen) == COUNT))
    assert sorted(SEEN[name][0]) == sorted(numbers(0, COUNT))
    assert texts_in(amqp, queue) == []


def test_a_queue_comes_behind_files(amqp, queue, tmp_path, name):
    (tmp_path / "old.txt").write_text("a\nb\n")
    publish(amqp, queue, "c", "d")
    files = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(tmp_path / "old.txt")
    ).build()
    source = HybridSource.builder(files).add_source(source_of(amqp, queue)).build()
    env = checkpointed(Watcher(), tmp_path)
    read(env, source, Notes(name)).print()
    run_until(env, lambda: wait_until_seen(name, lambda seen: len(seen) >= 4))
    assert SEEN[name][0] == ["a", "b", "c", "d"]


def test_the_prefetch_count_bounds_what_comes_between_two_checkpoints(own_amqp, tmp_path, name):
    publish(own_amqp, "q", *numbers(0, 50))
    env = checkpointed(Watcher(), tmp_path)
    builder = config_builder(own_amqp).set_prefetch_count(10)
    read(env, source_of(own_amqp, "q", builder=builder), Notes(name)).print()
    run_until(env, lambda: wait_until_seen(name, lambda seen: len(seen) == 50))
    assert SEEN[name][0] == numbers(0, 50)
    assert own_amqp.methods.count("Tx.Commit") >= 4
