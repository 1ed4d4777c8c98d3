"""Programs with high availability on a MiniCluster, and the driver that comes after: another store of the same place."""

import threading
from contextlib import contextmanager
from pathlib import Path

from penstock.common import Encoder
from penstock.connectors.file_system import FileSink
from penstock.engine.hosting.jobmanager.ha.election import Election
from penstock.engine.hosting.jobmanager.ha.settings import ha_settings_of
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.model.config import Settings
from tests.tools.hosting.running_job import manager_of
from tests.tools.output_files import committed_lines
from tests.tools.programs.environments import minicluster_environment

LEASE_MS = 2000
GATES: dict[str, threading.Event] = {}


def configured(folder: Path, **more: str) -> dict[str, str]:
    return {
        "high-availability.type": "FILE",
        "high-availability.storageDir": str(folder / "ha"),
        "high-availability.cluster-id": "tests",
        "penstock.high-availability.lease-duration": f"{LEASE_MS} ms",
        "penstock.high-availability.renew-interval": "100 ms",
    } | more


def ha_environment(folder: Path, observer: JobObserver | None = None, **more: str):
    cluster = MiniCluster(observer=observer or JobObserver())
    return minicluster_environment(cluster, configured(folder, **more))


def other_driver(folder: Path, **more: str) -> Election:
    return Election(ha_settings_of(Settings(configured(folder, **more))), lambda _text: None)


def numbers_to_file(env, folder: Path, function=lambda v: v) -> None:
    sink = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder()).build()
    env.from_collection(list(range(10))).map(function).map(str).sink_to(sink)


def result_of(folder: Path) -> list[int]:
    return sorted(int(line) for line in committed_lines(folder / "out"))


class HeldFunction:
    """A function that stands still at a value, in this process; it says so."""

    def __init__(self, name: str) -> None:
        self.name = name
        GATES[name], GATES[name + " reached"] = threading.Event(), threading.Event()

    def __call__(self, value):
        if value == 7:
            GATES[self.name + " reached"].set()
            GATES[self.name].wait()
        return value

    def wait(self) -> None:
        assert GATES[self.name + " reached"].wait(30)

    def open(self) -> None:
        GATES[self.name].set()


@contextmanager
def holding(name: str):
    made = HeldFunction(name)
    try:
        yield made
    finally:
        made.open()


def pause(client):
    """As by SIGSTOP, for what leads to effects: nothing is renewed and nothing done. Returns what resumes it."""
    keeper = manager_of(client).parts.guard
    trust = doubt(client)
    keeper.renew = lambda: None

    def resume():
        trust()
        del keeper.renew

    return resume


def doubt(client):
    """The driver does not trust its lease. Returns what makes it do so again."""
    keeper = manager_of(client).parts.guard
    keeper.may_act, keeper.lost = lambda: False, lambda: None

    def trust():
        del keeper.may_act, keeper.lost

    return trust


@contextmanager
def held_job(env, folder: Path, name: str):
    """A job of numbers that stands still while one looks; it goes on at the end. Gives: what holds it, and its client."""
    with holding(name) as held:
        numbers_to_file(env, folder, held)
        client = env.execute_async(name)
        held.wait()
        yield held, client
