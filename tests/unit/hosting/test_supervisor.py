"""What a supervisor leaves in Spark's reused worker: nothing; and what it clears away of the killed."""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading

import pytest

from penstock.hosting import supervisor, user_output
from penstock.hosting.supervisor import SupervisorConfig, supervise, sweep_leftovers
from penstock.hosting.wire import MessageBuffer


def config() -> SupervisorConfig:
    return SupervisorConfig("tm-1", "127.0.0.1", 1, b"s", "token", "cluster", 0.01, 0.05, None, {})


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
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(supervisor, "_connect", lambda _: (ours, MessageBuffer()))

    def fails(*args, **kwargs):
        raise error

    monkeypatch.setattr(supervisor.subprocess, "Popen", fails)
    before = open_descriptors()
    del before[str(ours.fileno())]
    text = supervise(config(), archive)
    assert "could not be started" in text and str(error) in text
    assert open_descriptors() == before
    theirs.close()


def test_a_lost_connection_is_told_as_one_and_the_child_is_ended(archive, monkeypatch):
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(supervisor, "_connect", lambda _: (ours, MessageBuffer()))
    started = []
    popen = subprocess.Popen

    def starts(_command, **options):
        started.append(popen([sys.executable, "-c", "import sys; sys.stdin.read()"], **options))
        theirs.close()
        return started[0]

    monkeypatch.setattr(supervisor.subprocess, "Popen", starts)
    assert "JobManager" in supervise(config(), archive)
    assert started[0].returncode is not None
    assert started[0].stdin.closed


def test_a_silent_job_manager_is_left_and_the_child_is_ended(archive, monkeypatch):
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(supervisor, "_connect", lambda _: (ours, MessageBuffer()))
    started = []
    popen = subprocess.Popen

    def starts(_command, **options):
        started.append(popen([sys.executable, "-c", "import sys; sys.stdin.read()"], **options))
        return started[0]

    monkeypatch.setattr(supervisor.subprocess, "Popen", starts)
    assert "nothing was heard of the JobManager for 0.05 s" in supervise(config(), archive)
    assert started[0].returncode is not None
    theirs.close()


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
    monkeypatch.setattr(supervisor.os, "getuid", lambda: mine + 1)
    sweep_leftovers()
    assert kept.exists()


def test_a_folder_in_use_in_another_container_stays(shared, dead_pid):
    """Its process id means nothing here; its lock does."""
    used = folder(shared, f"penstock-{dead_pid}-abc")
    with supervisor._claimed(str(used / "penstock.zip")):
        sweep_leftovers()
        assert used.exists()
    sweep_leftovers()
    assert not used.exists()


def test_supervising_sweeps_first_and_a_folder_that_cannot_be_listed_is_no_error(
    shared, dead_pid, archive, monkeypatch
):
    dead = folder(shared, f"penstock-{dead_pid}-abc")

    def unreachable(_config):
        raise OSError("refused")

    monkeypatch.setattr(supervisor, "_connect", unreachable)
    assert "could not reach" in supervise(config(), archive)
    assert not dead.exists()
    monkeypatch.setattr(tempfile, "tempdir", str(shared / "nowhere"))
    assert "could not reach" in supervise(config(), archive)


def test_the_lock_is_gone_with_the_supervisor(archive):
    with supervisor._claimed(archive):
        pass
    with open(archive, "rb") as claim:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)


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
def test_a_child_that_is_stopped_is_known_as_such():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert not supervisor.is_stopped(child.pid)
        child.send_signal(signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        assert supervisor.is_stopped(child.pid)
        child.send_signal(signal.SIGCONT)
        os.waitpid(child.pid, os.WCONTINUED)
        assert not supervisor.is_stopped(child.pid)
    finally:
        child.kill()
        child.communicate()
    assert not supervisor.is_stopped(child.pid)
