"""What a supervisor leaves in Spark's reused worker: nothing; and what it clears away of the killed."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from penstock.engine.hosting.network.wire.dialling import Tickets
from penstock.engine.hosting.network.wire.messages import ControlWire, frame
from penstock.engine.hosting.reporting.logs.settings import LogSettings
from penstock.engine.hosting.shipping import worker_folders
from penstock.engine.hosting.shipping.worker_files import WorkerFiles
from penstock.engine.hosting.shipping.worker_folders import sweep_leftovers
from penstock.engine.hosting.spark.executor_task import claimed_folder
from penstock.engine.hosting.taskmanager import child as taskmanager_child
from penstock.engine.hosting.taskmanager import supervisor
from penstock.engine.hosting.taskmanager.child import TaskManagerChild
from penstock.engine.hosting.taskmanager.services import user_output
from penstock.engine.hosting.taskmanager.supervisor import Peer, SupervisorConfig, supervise
from penstock.engine.hosting.taskmanager_order import WorkerOrder
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages import Heartbeat, ProcessEnded, ProcessStopped
from penstock.engine.model.plain import to_plain
from tests.tools.identities import new_credentials, tls_ends
from tests.tools.permissions import mode, umask

SECRET = new_credentials()
ONLY = {
    "start_id": "tm-1",
    "resource_id": "tm-1",
    "master_host": "127.0.0.1",
    "master_port": 1,
    "token": "token",
    "cluster_id": "cluster",
    "silence_timeout_s": 0.05,
}


def config(silence_s: float = 0.05) -> SupervisorConfig:
    ticket = Tickets(SECRET).new()
    worker = {"logs": to_plain(LogSettings())}
    only = {**ONLY, "silence_timeout_s": silence_s}
    return SupervisorConfig(
        "tm-1", "127.0.0.1", 1, ticket.to_plain(), 0.01, silence_s, worker, only
    )


def open_descriptors() -> dict[str, str]:
    """Number -> what it is; without the one that the listing itself needs."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return found


@pytest.fixture
def archive(tmp_path):
    (tmp_path / "penstock.zip").write_bytes(b"")
    return str(tmp_path / "penstock.zip")


@pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"), reason="descriptors are listed on Linux only"
)
@pytest.mark.parametrize("error", [OSError("no memory"), ValueError("embedded null byte")])
def test_a_child_that_cannot_be_started_leaves_no_descriptor(archive, monkeypatch, error):
    def fails(*args, **kwargs):
        raise error

    monkeypatch.setattr(taskmanager_child.subprocess, "Popen", fails)
    before = open_descriptors()
    with pytest.raises(type(error), match=str(error)):
        TaskManagerChild(archive, None)
    assert open_descriptors() == before


@pytest.fixture
def child(archive, monkeypatch):
    """That only waits for its end."""
    popen = subprocess.Popen
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    monkeypatch.setattr(
        taskmanager_child.subprocess, "Popen", lambda _command, **options: popen(waits, **options)
    )
    with TaskManagerChild(archive, None) as started:
        yield started


@pytest.fixture
def theirs(monkeypatch):
    """The JobManager's end of the supervisor's connection."""
    ours, theirs = tls_ends(SECRET)
    monkeypatch.setattr(supervisor, "register", lambda *_: SECRET)
    monkeypatch.setattr(supervisor, "connect", lambda *_: ours)
    monkeypatch.setattr(supervisor, "_END_WITHIN_S", 0.0)
    with theirs:
        yield theirs


def test_a_lost_connection_is_told_as_one(child, theirs):
    theirs.close()
    assert "JobManager" in supervise(config(), child)


@pytest.mark.parametrize("was_counted", [True, False])
def test_a_killed_process_was_killed_for_memory_where_the_kernel_counts_that(
    child, theirs, monkeypatch, was_counted
):
    monkeypatch.setattr(supervisor.CgroupMemory, "has_killed", lambda _: was_counted)
    child.process.kill()
    os.waitid(os.P_PID, child.process.pid, os.WEXITED | os.WNOWAIT)
    cause = supervise(config(60.0), child)
    assert ("because memory was exhausted: it had" in cause) == was_counted
    assert ("it had 0 B" in cause) is False
    theirs.settimeout(60.0)
    wire, reported = ControlWire(), []
    while data := theirs.recv(1 << 16):
        reported += wire.feed(data)
    (end,) = [one for one in reported if isinstance(one, ProcessEnded)]
    assert (end.cause, end.for_memory) == (cause, was_counted)


def test_a_stopped_process_is_told_of_in_place_of_a_heartbeat(child, theirs):
    told = []

    def listen():
        wire = ControlWire()
        while data := theirs.recv(1 << 16):
            for message in wire.feed(data):
                told.append(type(message))
                if isinstance(message, Heartbeat):
                    os.kill(child.process.pid, signal.SIGSTOP)
                elif isinstance(message, ProcessStopped):
                    theirs.shutdown(socket.SHUT_RDWR)
                    return

    listener = threading.Thread(target=listen)
    listener.start()
    supervise(config(60.0), child)
    listener.join()
    assert told[0] is Heartbeat
    assert told[-1] is ProcessStopped


def test_a_process_that_mostly_waits_for_a_processor_was_starved(child, monkeypatch):
    """By the second number of its schedstat, in ns."""
    now, waited = [100.0], [0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(taskmanager_child, "time", clock)
    monkeypatch.setattr(taskmanager_child.Path, "read_text", lambda *_: f"5 {waited[0]} 3\n")
    child.was_starved()
    seen = []
    for waits_ms in (0, 400, 600, 1000, 100):
        now[0] += 1.0
        waited[0] += waits_ms * 1_000_000
        seen.append(child.was_starved())
    assert seen == [False, False, True, True, False]


def test_where_the_kernel_does_not_say_nobody_was_starved(child, monkeypatch):
    def missing(*_):
        raise FileNotFoundError

    monkeypatch.setattr(taskmanager_child.Path, "read_text", missing)
    assert not child.was_starved()


def test_a_silent_job_manager_is_left(child, theirs):
    assert "nothing was heard of the JobManager for 0.05 s" in supervise(config(), child)
    assert child.process.wait() == -signal.SIGKILL


def test_an_order_that_came_together_with_others_is_not_left_unread():
    """A selector sees only what the kernel has: TLS may have taken more from it than was asked."""
    ours, driver = tls_ends(SECRET)
    ours.setblocking(False)
    peer = Peer(ResourceId("pool"), ours, 60.0, 0.0)
    orders = [Heartbeat(ResourceId("x" * 20_000), number) for number in range(5)]
    with ours, driver:
        driver.sendall(b"".join(map(frame, orders)))
        got = []
        while len(got) < len(orders):
            assert select.select([ours], [], [], 60.0)[0], "an order lies there and nobody is woken"
            got += peer.received()
    assert got == orders


class Slept:
    """A clock and a `select` of which the first call lasts for `seconds`, as in a process that was stopped meanwhile."""

    def __init__(self, seconds):
        self.now = 100.0
        self.waits = [seconds]

    def monotonic(self):
        return self.now

    def select(self, watched, *_):
        self.now += self.waits.pop() if self.waits else 0.0
        return watched, [], []


def after_sleep(monkeypatch, child, theirs, seconds, reports):
    """Why it ended, when the driver had been heard before, and closed the connection after. Reports come every 10 ms."""
    slept = Slept(seconds)
    monkeypatch.setattr(supervisor, "time", slept)
    monkeypatch.setattr(supervisor, "select", slept)

    def read_reports():
        child.reports += reports
        return []

    monkeypatch.setattr(child, "read_reports", read_reports)
    theirs.sendall(frame(Heartbeat(ResourceId("driver"), 0)))
    theirs.shutdown(socket.SHUT_WR)
    return supervise(config(), child)


def test_a_supervisor_that_was_stopped_does_not_take_that_for_the_drivers_silence(
    child, theirs, monkeypatch
):
    assert "closed the connection" in after_sleep(monkeypatch, child, theirs, 60.0, 6000)


def test_if_the_taskmanager_was_stopped_with_it_the_silence_counts(child, theirs, monkeypatch):
    assert "nothing was heard" in after_sleep(monkeypatch, child, theirs, 60.0, 1)


@pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"), reason="descriptors are listed on Linux only"
)
def test_a_child_is_ended_and_leaves_no_descriptor(archive):
    before = open_descriptors()
    with TaskManagerChild(archive, None) as started:
        assert open_descriptors() != before
    assert started.process.returncode is not None
    assert started.process.stdin.closed
    assert open_descriptors() == before


def test_what_a_child_prints_is_this_users_alone(archive, tmp_path):
    with umask(0), TaskManagerChild(archive, None):
        assert mode(tmp_path / "penstock.stderr") == 0o600


def test_one_that_cannot_begin_is_told_with_its_last_words(archive, theirs, monkeypatch):
    monkeypatch.setattr(taskmanager_child, "BOOT", "raise SystemExit('no such library')")
    with TaskManagerChild(archive, None) as started:
        started.process.wait()
        text = supervise(config(), started)
    assert "exit code 1" in text
    assert "no such library" in text


def test_a_pool_is_told_the_last_words_of_a_process_that_hosts_nobody_yet(
    archive, theirs, monkeypatch
):
    monkeypatch.setattr(taskmanager_child, "BOOT", "raise SystemExit('no such library')")
    with TaskManagerChild(archive, None) as started:
        started.process.wait()
        supervise(replace(config(60.0), only=None), started)
    theirs.settimeout(60.0)
    wire, told = ControlWire(), []
    while data := theirs.recv(1 << 16):
        told += wire.feed(data)
    assert isinstance(told[-1], ProcessEnded)
    assert "no such library" in told[-1].cause


def test_what_ends_a_process_is_told_whoever_takes_what_it_prints(archive, tmp_path):
    """The second order is none."""
    worker = to_plain(WorkerOrder(WorkerFiles(), 60.0, progress_fd=1))
    code = "from penstock.engine.hosting.taskmanager import process; process.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, archive],
        input=f"{json.dumps(worker)}\nno order\n",
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert "JSONDecodeError" in done.stderr


# ---------------------------------------------------------------------- leftovers


@pytest.fixture
def shared(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def dead_pid():
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    return child.pid


def folder(shared, name):
    (shared / name).mkdir()
    (shared / name / "penstock.zip").write_bytes(b"")
    return shared / name


def test_folders_of_dead_workers_go_and_all_others_stay(shared, dead_pid):
    dead = folder(shared, f"penstock-{dead_pid}-abc")
    others = [
        folder(shared, f"penstock-{os.getpid()}-abc"),
        folder(shared, f"penstock-modules-{dead_pid}"),
        folder(shared, f"penstock-{dead_pid}"),
        folder(shared, f"other-{dead_pid}-abc"),
    ]
    (shared / f"penstock-{dead_pid}-file").write_text("")
    os.symlink(others[3], shared / f"penstock-{dead_pid}-link")
    sweep_leftovers()
    assert not dead.exists()
    assert all((other / "penstock.zip").exists() for other in others)
    assert (shared / f"penstock-{dead_pid}-file").exists()


def test_folders_of_another_user_stay(shared, dead_pid, monkeypatch):
    kept = folder(shared, f"penstock-{dead_pid}-abc")
    mine = os.getuid()
    monkeypatch.setattr(worker_folders.os, "getuid", lambda: mine + 1)
    sweep_leftovers()
    assert kept.exists()


def test_a_folder_in_use_in_another_container_stays(shared, dead_pid):
    """Its process id means nothing here; its lock does. It has none while it has another name."""
    made, claim = claimed_folder("spool-")
    assert worker_folders.FOLDER.fullmatch(os.path.basename(made))
    used = shared / f"penstock-{dead_pid}-abc"
    os.rename(made, used)
    (shared / "penstock-made-abc").mkdir()
    sweep_leftovers()
    assert used.exists()
    os.close(claim)
    sweep_leftovers()
    assert sorted(os.listdir(shared)) == ["penstock-made-abc"]


def test_a_folder_in_place_of_the_archive_is_swept_and_what_it_links_to_stays(
    shared, dead_pid, tmp_path
):
    package = tmp_path / "package"
    package.mkdir()
    used = shared / f"penstock-{dead_pid}-abc"
    (used / "penstock.zip").mkdir(parents=True)
    os.symlink(package, used / "penstock.zip" / "penstock")
    sweep_leftovers()
    assert not used.exists()
    assert package.exists()


def test_supervising_sweeps_first_and_a_folder_that_cannot_be_listed_is_no_error(
    shared, dead_pid, child, monkeypatch
):
    dead = folder(shared, f"penstock-{dead_pid}-abc")

    def unreachable(*_):
        raise OSError("refused")

    monkeypatch.setattr(supervisor, "connect", unreachable)
    assert "could not reach" in supervise(config(), child)
    assert not dead.exists()
    monkeypatch.setattr(tempfile, "tempdir", str(shared / "nowhere"))
    assert "could not reach" in supervise(config(), child)


# ---------------------------------------------------------------------- what user functions print


def test_a_part_of_a_line_waits_for_its_end_or_the_tasks(monkeypatch):
    sent = []
    stream = user_output.RoutedStream(lambda: (None, "Op"), sent.append, is_error=False)
    monkeypatch.setattr(sys, "stdout", stream)
    print("a", end="", flush=True)
    print("b", end="", flush=True)
    assert sent == []
    user_output.end_thread()
    user_output.end_thread()
    assert [output.text for output in sent] == ["ab"]


def test_the_end_of_one_thread_leaves_the_parts_of_others(monkeypatch):
    sent = []
    stream = user_output.RoutedStream(lambda: (None, "Op"), sent.append, is_error=True)
    with contextlib.redirect_stderr(stream):
        stream.write("mine")
        other = threading.Thread(target=user_output.end_thread)
        other.start()
        other.join()
        assert sent == []
        user_output.end_thread()
    assert [(output.text, output.is_error) for output in sent] == [("mine", True)]


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="states are told on Linux only")
def test_a_child_that_is_stopped_is_known_as_such(child):
    assert not child.is_stopped
    child.process.send_signal(signal.SIGSTOP)
    os.waitpid(child.process.pid, os.WUNTRACED)
    assert child.is_stopped
    child.process.send_signal(signal.SIGCONT)
    os.waitpid(child.process.pid, os.WCONTINUED)
    assert not child.is_stopped
    child.process.kill()
    child.process.wait()
    assert not child.is_stopped
