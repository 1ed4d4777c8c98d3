"""What the audit's controller is made of: the deck, faults of single processes, the log's generator, the verdict."""

import random
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from audit import processes
from audit.children import Child
from audit.controller import AuditFailed, Controller, Options
from audit.drivers import DriverFailed, Drivers, Submission
from audit.event_log import Plan, end_of
from audit.faults import DECK, FAULTS, fault_of_one, flip
from audit.generator import generate


def test_every_fault_is_dealt_and_known():
    assert set(DECK) == set(FAULTS)


def test_a_fault_without_a_victim_says_so_and_one_with_a_victim_names_it():
    victim = psutil.Process()
    try:
        fault_of_one(lambda mark: [victim] if mark == "here" else [])(lambda one, chance: ", hurt")
        carry_out = FAULTS.pop("<lambda>")
    finally:
        FAULTS.pop("<lambda>", None)
    run = SimpleNamespace(mark="elsewhere", chance=random.Random(1))
    assert carry_out(run) is None
    run.mark = "here"
    assert carry_out(run) == f"process {victim.pid}, hurt"


def test_a_flipped_byte_is_right_again_after_the_second_time(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    flip(path, 1)
    assert path.read_bytes() == b"a\x9dc"
    flip(path, 1)
    assert path.read_bytes() == b"abc"


LISTENS = """
import socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
print(flush=True)
again, _ = listening.accept()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reaches into another process")
def test_connections_are_cut_and_who_listens_goes_on(tmp_path):
    ours, theirs = socket.socketpair()
    place = str(tmp_path / "socket")
    command = [sys.executable, "-c", LISTENS, place]
    with (
        ours,
        theirs,
        subprocess.Popen(command, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE) as child,
    ):
        child.stdout.readline()
        assert processes.cut_connections(psutil.Process(child.pid), 1.0, [0.0]) == 1
        assert ours.recv(1) == b""
        with socket.socket(socket.AF_UNIX) as another:
            another.connect(place)
        assert child.wait(20) == 0


def test_the_log_is_complete_when_there_is_to_be_no_more(tmp_path):
    turns = iter([True, True, False])
    counts = generate(str(tmp_path), Plan(rate=1000), lambda seconds: next(turns))
    assert end_of(tmp_path) == counts
    assert sum(counts.values()) > 0


# ------------------------------------------------------------------ drivers

TALKS = """
import json, sys
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    command = json.loads(line)
    if "stop" in command:
        print(json.dumps({"savepoint": "there"}), flush=True)
        print(json.dumps({"finished": True}), flush=True)
    elif command["run"]["savepoint"] == "damaged":
        print(json.dumps({"failed": "file x is damaged"}), flush=True)
    else:
        print("waiting for its end", file=sys.stderr, flush=True)
        print(json.dumps({"running": True}), flush=True)
        print(json.dumps({"status": "RUNNING"}), flush=True)
        print(json.dumps({"checkpoint": 1, "size": 1}), flush=True)
"""


@pytest.fixture
def drivers(tmp_path, monkeypatch):
    """With processes that answer at once, and start nothing."""
    (tmp_path / "talks.py").write_text(TALKS)
    monkeypatch.setattr("audit.children.ROOT", str(tmp_path))
    started = []

    def start(name, module, *arguments):
        started.append(Child("mark", tmp_path / f"{name}.log", "talks", *arguments))
        return started[-1]

    yield Drivers(start, Submission(2, 100), "local", 20.0)
    for child in started:
        child.end()


def test_a_job_is_stopped_refused_and_run_again_by_one_driver(drivers):
    drivers.begin()
    assert drivers.stop_with_savepoint() == "there"
    assert "x is damaged" in drivers.refusal(savepoint="damaged")
    drivers.submit(savepoint="there", parallelism=3)
    assert drivers.submission.parallelism == 3
    with pytest.raises(DriverFailed, match="should say 'failed'"):
        Drivers.expect(drivers, drivers.leader, "failed", frozenset({"running"}))


def test_a_standby_leads_when_the_leader_is_dead(drivers):
    drivers.begin()
    standby = drivers.standby()
    drivers.leader.process.send_signal(signal.SIGKILL)
    drivers.leader.process.wait()
    with pytest.raises(DriverFailed, match="has ended"):
        drivers.check()
    drivers.promote(standby)
    drivers.check()
    standby.end()


def test_an_auditor_that_breaks_fails_the_run(tmp_path):
    controller = Controller(Options(tmp_path))
    ended = SimpleNamespace(returncode=2)
    controller.auditor = SimpleNamespace(
        lines=[], is_alive=False, process=ended, log=tmp_path, tail=lambda: "its last words"
    )
    with pytest.raises(AuditFailed, match=r"the auditor broke[\s\S]*its last words"):
        controller.check_auditor()
    controller.auditor.lines.append((1.0, {"problem": "chain: lost"}))
    with pytest.raises(AuditFailed, match="chain: lost"):
        controller.check_auditor()
