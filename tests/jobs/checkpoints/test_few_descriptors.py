"""Checkpoints and restarts of a process that runs out of file descriptors, at each step that takes one."""

import errno
import os
import socket
import sys
import threading
from contextlib import contextmanager

import pytest

from penstock.engine.hosting.jobmanager.checkpoint_writer import SavepointFailed
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.checkpoints import CheckpointType
from tests.tools.hosting.running_job import control_of
from tests.tools.programs.checkpoint_programs import (
    HeldSource,
    Watcher,
    expected_sums,
    lines_of,
    sums_to_file,
    wait_until_running,
)
from tests.tools.programs.environments import RESTARTS, minicluster_environment
from tests.tools.programs.user_functions import same
from tests.tools.waiting import PATIENCE_S, wait_until

TAKES_A_DESCRIPTOR = frozenset({"open", "socket.__new__", "os.scandir", "os.listdir"})
MOST_FAILURES = 20
"""One shortage is over after so many."""


class Shortage:
    """Refuses descriptors: of those asked for, the ones at these places.

    The test's thread gets all. So does the JobManager's, which starts the TaskManagers of a MiniCluster.
    """

    def __init__(self) -> None:
        self.test = threading.get_ident()
        self.lock = threading.Lock()
        self.refused: frozenset[int] = frozenset()
        self.asked = -1
        """How many were asked for; -1: they are not counted."""

    @contextmanager
    def of(self, places):
        self.refused, self.asked = frozenset(places), 0
        try:
            yield
        finally:
            self.asked = -1

    def ask(self) -> None:
        """Raises: OSError."""
        thread = threading.current_thread()
        if thread.ident == self.test or thread.name == "penstock-jobmanager":
            return
        with self.lock:
            if self.asked < 0:
                return
            place, self.asked = self.asked, self.asked + 1
        if place in self.refused:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def hook(self, event, arguments) -> None:
        """Python makes a socket of what was accepted, too; that has its descriptor already."""
        if self.asked < 0:
            return
        is_accepted = event == "socket.__new__" and "acceptor" in threading.current_thread().name
        if event in TAKES_A_DESCRIPTOR and not is_accepted:
            self.ask()


@pytest.fixture(scope="module")
def hooked():
    """Python keeps an audit hook until the process ends; this one does nothing outside `of`."""
    shortage = Shortage()
    sys.addaudithook(shortage.hook)
    return shortage


@pytest.fixture
def shortage(hooked, monkeypatch):
    accept = socket.socket.accept

    def accept_or_refuse(sock):
        hooked.ask()
        return accept(sock)

    monkeypatch.setattr(socket.socket, "accept", accept_or_refuse)
    return hooked


def until_checkpointed(client) -> int:
    """Returns: how many failed before one completed. Raises: TimeoutError: one neither completes nor fails."""
    for failed in range(MOST_FAILURES):
        wait_until_running(client)
        try:
            control_of(client).start_savepoint(CheckpointType.CHECKPOINT, None)(PATIENCE_S)
        except SavepointFailed:
            continue
        return failed
    raise AssertionError("no checkpoint completes")


def lose_one(cluster, watcher) -> None:
    """A TaskManager ends, and the job restarts."""
    restarts = len(watcher.restored)
    provider = cluster.last_provider
    running = [name for name in provider.managers if provider.progress(name) is not None]
    provider.managers[running[0]].abandon()
    wait_until(lambda: len(watcher.restored) > restarts, "the job does not restart")


@pytest.mark.parametrize(
    ("tolerated", "loses", "lasts", "stride"),
    [
        pytest.param(1000, False, 1, 1, id="the job goes on"),
        pytest.param(0, False, 5, 3, id="the job restarts"),
        pytest.param(0, True, 2, 2, id="a TaskManager was lost"),
    ],
)
def test_no_step_waits_for_ever(tmp_path, stage, shortage, tolerated, loses, lasts, stride):
    settings = {
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "execution.checkpointing.data-inline-threshold": "0",
        "execution.checkpointing.tolerable-failed-checkpoints": str(tolerated),
        "restart-strategy.fixed-delay.attempts": "1000000",
    }
    watcher = Watcher()
    cluster = MiniCluster(parallelism=2, observer=watcher)
    env = minicluster_environment(cluster, RESTARTS | settings)
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 2, 40, 20), same)
    client = env.execute_async("sums")
    stage.wait_until_held(2)
    wait_until_running(client)
    place, asked, failed = 0, 1, 0
    while place < asked:
        with shortage.of(range(place, place + lasts)):
            if loses:
                lose_one(cluster, watcher)
            failed += until_checkpointed(client)
            asked = shortage.asked
        place += stride
    assert failed >= 5
    stage.gate.set()
    client.get_job_execution_result().result()
    assert lines_of(tmp_path / "out") == expected_sums(2, 40)
