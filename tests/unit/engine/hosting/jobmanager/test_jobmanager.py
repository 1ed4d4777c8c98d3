"""The JobManager's shell on a MiniCluster: committables, observers, collect streams, frozen TaskManagers."""

import asyncio
import gc
import pickle
import threading
from types import SimpleNamespace

import pytest

from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.hosting.jobmanager import control_server, taskmanager_watch
from penstock.engine.hosting.jobmanager.driver_streams import CollectStream
from penstock.engine.hosting.jobmanager.ha.guard import JobGuard
from penstock.engine.hosting.jobmanager.jobmanager import JobManager
from penstock.engine.hosting.jobmanager.taskmanager_watch import TaskManagerWatch
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.hosting.provider import HostChanges, HostLoss
from penstock.engine.model.errors import ExternalError, JobExecutionError
from penstock.engine.model.ids import (
    AttemptId,
    ExecutionVertexId,
    FencingToken,
    ResourceId,
    TaskManagerLocation,
    VertexId,
)
from penstock.engine.model.messages import DriverData, Shutdown
from penstock.engine.model.messages.shared import FailureInfo
from penstock.engine.model.states import JobStatus
from tests.tools.programs.counting_sink import CountingSink
from tests.tools.programs.environments import minicluster_environment


def environment(observer: JobObserver | None = None) -> StreamExecutionEnvironment:
    return minicluster_environment(MiniCluster(observer=observer or JobObserver()))


def test_a_committable_may_be_any_object():
    env = environment()
    sink = CountingSink(lambda counts: counts)
    env.from_collection(["a", "b", "a"]).sink_to(sink)
    env.execute("counts")
    assert sink.total == {"a": 2, "b": 1}


def test_a_committable_that_cannot_be_pickled_names_its_sink():
    env = environment()
    env.from_collection([1]).sink_to(CountingSink(lambda _: threading.Lock())).name("Locks")
    with pytest.raises(JobExecutionError, match=r"(?s)pickle.*Locks"):
        env.execute("locks")


@pytest.fixture
def thresholds():
    """Those of Python's collector, which are put back."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("thresholds")
@pytest.mark.parametrize(
    ("of_the_program", "in_the_job"),
    [
        ((700, 10, 10), (20_000, 10, 10)),
        ((0, 10, 10), (0, 10, 10)),
        ((90_000, 5, 5), (90_000, 5, 5)),
    ],
)
def test_a_driver_looks_for_cycles_less_often_unless_its_program_has_decided(
    of_the_program, in_the_job
):
    gc.set_threshold(*of_the_program)
    env = environment()
    env.from_collection([1]).print()
    env.execute("one")
    assert gc.get_threshold() == in_the_job


class Faulty(JobObserver):
    def on_execution_state_changed(self, change):
        raise BrokenPipeError("the console is closed")

    def on_job_tick(self, event):
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


class Control:
    """A link to a TaskManager or a supervisor that takes everything."""

    is_closing = False

    def __init__(self, kernel_answers=False):
        self.kernel_answers = kernel_answers
        self.sent = []

    def answers(self, within_ms):
        return self.kernel_answers

    def send(self, message):
        self.sent.append(message)

    def send_encoded(self, body): ...
    def close(self): ...


class Shell:
    """What a watch needs of the shell: who is connected, and where losses go."""

    def __init__(self):
        self.job_id = "job"
        self.links = control_server.Links(FencingToken("token"))
        self.guard = JobGuard()
        self.resource_manager = SimpleNamespace(is_full=False)
        self.cancelling, self.where = {}, {}
        self.lost = []

    def end_taskmanager(self, resource_id, reason): ...
    def feed_job(self, event): ...

    def feed_resources(self, event):
        self.lost.append((event.resource_id, event.cause))


class Provider:
    """A host that sees of no TaskManager whether it lives, unless it is in `seen`."""

    def __init__(self):
        self.seen = {}

    def progress(self, resource_id):
        return self.seen.get(resource_id)

    def changes(self):
        return HostChanges()


class Told(JobObserver):
    def __init__(self):
        self.starved = []

    def on_task_manager_starved(self, event):
        self.starved.append((event.resource_id, event.cause))


def pass_time(watch, clock, ms):
    """As on a loop that runs: the watch ticks every 100 ms."""
    for _ in range(ms // 100):
        clock[0] += 100
        watch.tick()


@pytest.fixture
def watched(monkeypatch):
    """A watch with its shell and its clock; `tm-1` has registered."""
    clock = [1000]
    monkeypatch.setattr(taskmanager_watch, "now_ms", lambda: clock[0])
    shell = Shell()
    settings = SimpleNamespace(
        heartbeat_interval_s=0.5,
        heartbeat_timeout_s=3.0,
        cancellation_timeout_s=3.0,
        frozen_timeout_s=30.0,
        silence_timeout_s=50.0,
        max_taskmanagers=None,
    )
    observer = Told()
    watch = TaskManagerWatch(shell, Provider(), observer, settings, lambda: False)
    shell.observer = observer
    shell.links.register(TaskManagerLocation(TM, "h", 1), Control())
    watch.registered(TM)
    return watch, shell, clock


TM = ResourceId("tm-1")


def test_a_silent_taskmanager_is_lost_once(watched):
    watch, shell, clock = watched
    for _ in range(10):
        clock[0] += 500
        watch.heard(TM)
        watch.tick()
    assert shell.lost == []
    pass_time(watch, clock, 6000)
    ((lost, cause),) = shell.lost
    assert lost == TM
    assert "no heartbeat for 3.0 s" in cause
    assert "raise heartbeat.timeout (now 3 s)" in cause


@pytest.mark.parametrize("says", [HostLoss("2 GB of 1 GB physical memory used", True), None])
def test_a_connection_that_ends_with_its_executor_is_a_loss_for_the_hosts_reason(
    watched, monkeypatch, says
):
    """The host knows it at the third question, or never."""
    watch, shell, _ = watched
    fed, asked = [], []

    def why_gone(executor):
        asked.append(executor)
        return says if len(asked) == 3 else None

    monkeypatch.setattr(taskmanager_watch, "_ASK_AGAIN_S", 0.0)
    monkeypatch.setattr(taskmanager_watch, "_WHY_GONE_MS", 60_000 if says else 0)
    watch.provider.why_gone = why_gone
    watch.host.staying[TM] = "7"

    async def ends():
        ended = asyncio.Event()
        shell.feed_job = lambda event: (fed.append(event), ended.set())
        watch.disconnected(TM, "connection closed")
        watch.host_ended(TM, "its worker is gone")
        await ended.wait()

    asyncio.run(ends())
    cause = says.cause if says else "connection closed"
    assert [(one.cause, one.for_memory) for one in fed] == [(cause, says is not None)]
    assert asked == ["7"] * (3 if says else 1)


@pytest.mark.parametrize(
    ("gone", "starts", "says"),
    [
        (None, 3, "3 TaskManagers in a row could not be started. The last one: refused"),
        ("Spark has ended", 1, "no TaskManager can be started any more: Spark has ended"),
    ],
)
def test_starts_that_fail_end_the_job_at_the_third_or_when_the_host_is_gone(
    watched, gone, starts, says
):
    watch, shell, _ = watched
    fed = []
    shell.feed_job = fed.append
    watch.provider.gone, watch.provider.describe = lambda: gone, lambda: "a host"
    for number in range(starts):
        assert fed == []
        watch.host_ended(ResourceId(f"tm-{number + 2}"), "refused")
    (end,) = fed
    assert says in end.failure.text
    assert not end.failure.is_recoverable


def test_a_pause_of_the_driver_itself_is_no_silence(watched):
    """Heartbeats that came meanwhile are read after the first tick."""
    watch, shell, clock = watched
    pass_time(watch, clock, 200)
    clock[0] += 60_000
    watch.tick()
    assert shell.lost == []
    pass_time(watch, clock, 2000)
    assert shell.lost == []
    pass_time(watch, clock, 1500)
    assert len(shell.lost) == 1


def test_a_starved_taskmanager_whose_kernel_answers_is_kept_and_told_of_once(watched):
    watch, shell, clock = watched
    shell.links.by_id[TM].control.kernel_answers = True
    pass_time(watch, clock, 20_000)
    assert shell.lost == []
    ((named, cause),) = shell.observer.starved
    assert named == TM
    assert "gets no processor" in cause
    assert "raise penstock.taskmanager.frozen-timeout (now 30 s)" in cause
    watch.heard(TM)
    pass_time(watch, clock, 20_000)
    assert shell.lost == []
    assert len(shell.observer.starved) == 2


def test_a_supervisors_kernel_answers_for_its_taskmanager_too(watched):
    watch, shell, clock = watched
    shell.links.supervise(TM, Control(kernel_answers=True))
    pass_time(watch, clock, 10_000)
    assert shell.lost == []


def test_a_starved_taskmanager_is_lost_when_it_stays_silent(watched):
    watch, shell, clock = watched
    shell.links.by_id[TM].control.kernel_answers = True
    pass_time(watch, clock, 29_000)
    assert shell.lost == []
    pass_time(watch, clock, 2000)
    ((lost, cause),) = shell.lost
    assert lost == TM
    assert "it got no processor" in cause
    assert "raise penstock.taskmanager.frozen-timeout (now 30 s)" in cause
    assert "heartbeat.timeout" not in cause


def test_the_option_that_decides_is_the_one_that_is_named(watched):
    """A longer `heartbeat.timeout` is also how long a starved or frozen TaskManager has."""
    _, shell, clock = watched
    settings = SimpleNamespace(
        heartbeat_interval_s=0.5,
        heartbeat_timeout_s=40.0,
        cancellation_timeout_s=3.0,
        frozen_timeout_s=30.0,
        silence_timeout_s=50.0,
        max_taskmanagers=None,
    )
    watch = TaskManagerWatch(shell, Provider(), shell.observer, settings, lambda: False)
    watch.registered(TM)
    shell.links.by_id[TM].control.kernel_answers = True
    pass_time(watch, clock, 41_000)
    ((_, cause),) = shell.lost
    assert "raise heartbeat.timeout (now 40 s)" in cause
    assert "frozen-timeout" not in cause


def test_a_starved_taskmanager_is_lost_when_its_kernel_no_longer_answers(watched):
    watch, shell, clock = watched
    control = shell.links.by_id[TM].control
    control.kernel_answers = True
    pass_time(watch, clock, 10_000)
    control.kernel_answers = False
    pass_time(watch, clock, 600)
    assert len(shell.lost) == 1


def test_a_stopped_process_is_lost_although_its_kernel_answers(watched):
    watch, shell, clock = watched
    shell.links.by_id[TM].control.kernel_answers = True
    pass_time(watch, clock, 1000)
    watch.stopped(TM)
    pass_time(watch, clock, 2100)
    ((_, cause),) = shell.lost
    assert "its process is stopped" in cause


def test_a_host_that_sees_its_taskmanagers_vouches_for_them(watched):
    watch, shell, clock = watched
    watch.provider.seen[TM] = 7
    pass_time(watch, clock, 20_000)
    assert shell.lost == []
    assert shell.observer.starved == []
    pass_time(watch, clock, 12_000)
    ((_, cause),) = shell.lost  # It lives, but nothing has moved in it.
    assert "frozen" in cause


def test_a_driver_beats_only_while_it_may_vouch_for_itself(watched, monkeypatch):
    watch, shell, clock = watched
    beats = []
    monkeypatch.setattr(shell.links, "beat", lambda: beats.append(clock[0]))
    for _ in range(4):
        watch.tick()
        clock[0] += 250
    shell.guard.may_vouch = lambda: False
    clock[0] += 5000
    watch.heard(TM)
    watch.tick()
    assert beats == [1000, 1500]


def test_a_supervisor_does_not_vouch_for_a_frozen_taskmanager(watched):
    watch, shell, clock = watched
    moved = 0
    while clock[0] < 11_000 + 30_000 - 500:
        clock[0] += 500  # the supervisor beats; the child moves for the first ten seconds
        moved = min(clock[0], 11_000)
        watch.supervisor_heard(TM, moved)
        watch.tick()
    assert shell.lost == []
    clock[0] += 500
    watch.supervisor_heard(TM, moved)
    watch.tick()
    ((lost, cause),) = shell.lost
    assert lost == TM
    assert "no progress for 30 s: frozen" in cause
    assert "raise penstock.taskmanager.frozen-timeout (now 30 s)" in cause


def test_a_task_that_does_not_answer_its_cancel_costs_its_taskmanager(watched):
    watch, shell, clock = watched
    attempt = AttemptId(ExecutionVertexId(VertexId("v"), 0), 0)
    shell.where[attempt], shell.cancelling[attempt] = TM, clock[0]
    pass_time(watch, clock, 2900)
    assert shell.lost == []
    watch.heard(TM)
    pass_time(watch, clock, 200)
    ((lost, cause),) = shell.lost
    assert lost == TM
    assert "did not end within 3 s of its cancel" in cause


def test_a_driver_that_got_no_processor_does_not_count_that_time_against_a_cancel(watched):
    """It has not read the answer. Of each pause, `heartbeat.interval` counts."""
    watch, shell, clock = watched
    attempt = AttemptId(ExecutionVertexId(VertexId("v"), 0), 0)
    watch.tick()
    shell.where[attempt], shell.cancelling[attempt] = TM, clock[0]
    pass_time(watch, clock, 2000)
    clock[0] += 5000
    watch.heard(TM)
    watch.tick()
    pass_time(watch, clock, 400)
    assert shell.lost == []
    pass_time(watch, clock, 100)
    ((_, cause),) = shell.lost
    assert "did not end within 3 s of its cancel" in cause


def test_a_second_taskmanager_of_a_fenced_name_is_refused():
    known = control_server.Links(FencingToken("token"))
    location = TaskManagerLocation(ResourceId("tm-1"), "h", 1)
    known.register(location, Control())
    known.fence(location.resource_id)
    with pytest.raises(ExternalError, match="no second one"):
        known.register(location, Control())


def test_the_supervisor_of_a_fenced_taskmanager_is_told_to_end_and_not_kept():
    """Its heartbeat crosses the order to end."""
    known, supervisor, name = (
        control_server.Links(FencingToken("token")),
        Control(),
        ResourceId("tm-1"),
    )
    known.supervise(name, supervisor)
    known.end(name, "idle")
    known.fence(name)
    known.supervise(name, supervisor)
    assert known.everybody() == set()
    assert supervisor.sent == [Shutdown("idle"), Shutdown("fenced off")]


@pytest.mark.parametrize(
    ("status", "is_recoverable", "gone", "expected"),
    [
        (JobStatus.FAILED, True, "the SparkSession was stopped", JobStatus.SUSPENDED),
        (JobStatus.FAILED, True, None, JobStatus.FAILED),
        (JobStatus.FAILED, False, "the SparkSession was stopped", JobStatus.FAILED),
        (JobStatus.CANCELED, True, "the SparkSession was stopped", JobStatus.CANCELED),
        (JobStatus.FINISHED, True, "the SparkSession was stopped", JobStatus.FINISHED),
    ],
)
def test_a_job_that_fails_without_spark_is_left_to_other_drivers(
    status, is_recoverable, gone, expected
):
    """A recorded end is carried out by the next driver, which then begins the program anew."""
    recorded, guard = [], JobGuard()
    guard.is_recoverable, guard.end = is_recoverable, recorded.append
    own = JobManager.__new__(JobManager)
    own.shell = SimpleNamespace(status=status, failure=FailureInfo("Lost", "no slots"))
    own.parts = SimpleNamespace(guard=guard, provider=SimpleNamespace(gone=lambda: gone))
    own.started_ms, own.job_graph = 0, SimpleNamespace(job_id="job")
    own.end_leadership()
    assert own.status is expected
    assert [one.status for one in recorded] == ([] if expected is JobStatus.SUSPENDED else [status])
    if expected is JobStatus.SUSPENDED:
        assert "the SparkSession was stopped" in own.failure_text
        assert "Here it ended with: Lost: no slots" in own.failure_text
