"""The JobManager's shell on a MiniCluster: committables, observers, collect streams, frozen TaskManagers."""

import pickle
import threading
from collections import Counter

import pytest

from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import Committer, Sink
from penstock.hosting import links
from penstock.hosting.driver_sink import CollectStream
from penstock.hosting.executor import MiniCluster
from penstock.hosting.job_observer import JobObserver
from penstock.model.deployment import TaskManagerLocation
from penstock.model.errors import ExternalError, JobExecutionError
from penstock.model.ids import AttemptId, ExecutionVertexId, ResourceId, VertexId
from penstock.model.messages import DriverData


def environment(observer: JobObserver | None = None) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.use_executor(MiniCluster(observer=observer or JobObserver()).executor())


class Counting(Sink):
    """Its committables are objects of the user's choice."""

    def __init__(self, make_committable):
        self.make_committable = make_committable
        self.total = Counter()

    def create_writer(self, context):
        return CountingWriter(self.make_committable)

    def create_committer(self):
        return Adding(self.total)


class CountingWriter:
    def __init__(self, make_committable):
        self.make_committable = make_committable
        self.counts = Counter()

    def write(self, batch, watermark_ms):
        self.counts.update(batch.values)

    def prepare_commit(self):
        return [self.make_committable(self.counts)]

    def close(self):
        pass


class Adding(Committer):
    def __init__(self, total):
        self.total = total

    def commit(self, committables):
        for counts in committables:
            self.total.update(counts)

    def abort(self, job_prefix):
        pass


def test_a_committable_may_be_any_object():
    env = environment()
    sink = Counting(lambda counts: counts)
    env.from_collection(["a", "b", "a"]).sink_to(sink)
    env.execute("counts")
    assert sink.total == {"a": 2, "b": 1}


def test_a_committable_that_cannot_be_pickled_names_its_sink():
    env = environment()
    env.from_collection([1]).sink_to(Counting(lambda _: threading.Lock())).name("Locks")
    with pytest.raises(JobExecutionError, match=r"(?s)pickle.*Locks"):
        env.execute("locks")


class Faulty(JobObserver):
    def execution_changed(self, change, job_graph):
        raise BrokenPipeError("the console is closed")

    def tick(self, job_master):
        raise ValueError("I/O operation on closed file")


def test_an_observer_that_fails_does_not_touch_the_job(capfd):
    with environment(Faulty()).from_collection([1, 2]).execute_and_collect() as rows:
        assert sorted(rows) == [1, 2]
    assert capfd.readouterr().err.count("Traceback") == 1


def data(subtask: int, rows: list) -> DriverData:
    attempt = AttemptId(ExecutionVertexId(VertexId("v"), subtask), 0)
    return DriverData("collect", attempt, len(rows), pickle.dumps(rows))


def test_a_restart_drops_only_rows_of_its_own_subtasks():
    granted = []
    stream = CollectStream(granted.append)
    stream.put(data(0, [1]))
    stream.put(data(1, [2]))
    assert stream.restart({ExecutionVertexId(VertexId("v"), 0)})
    stream.end(None)
    assert list(stream.batches()) == [[2]]
    assert len(granted) == 1


def test_rows_that_were_handed_out_forbid_a_restart_of_their_subtask_only():
    stream = CollectStream(lambda _credit: None)
    stream.put(data(0, [1]))
    assert next(stream.batches()) == [1]
    assert stream.restart({ExecutionVertexId(VertexId("v"), 1)})
    assert not stream.restart({ExecutionVertexId(VertexId("v"), 0)})


class Writer:
    def is_closing(self):
        return False

    def write(self, data):
        pass

    def close(self):
        pass


def test_a_supervisor_does_not_vouch_for_a_frozen_taskmanager(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(links, "monotonic", lambda: now[0])
    known = links.Links()
    tm = ResourceId("tm-1")
    known.register(TaskManagerLocation(tm, "h", 1), Writer())
    for _ in range(70):  # 35 s of supervisor beats, the child moves for the first 10 s of them
        now[0] += 0.5
        known.supervisor_heard(tm, int(min(now[0], 1010.0)), Writer())
        if now[0] < 1010.0 + links.FROZEN_S:
            assert known.silent_since(now[0] - 3.0) == []
    now[0] = 1010.1 + links.FROZEN_S
    known.supervisor_heard(tm, 1010, Writer())
    assert known.silent_since(now[0] - 3.0) == [tm]


def test_a_second_taskmanager_of_a_fenced_name_is_refused():
    known = links.Links()
    location = TaskManagerLocation(ResourceId("tm-1"), "h", 1)
    known.register(location, Writer())
    known.fence(location.resource_id)
    with pytest.raises(ExternalError, match="refused"):
        known.register(location, Writer())
