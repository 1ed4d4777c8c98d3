"""Jobs that write numbers to a sink while something is killed. Each driver is a process of its own, with embedded Spark."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import psutil

from penstock.engine.hosting.taskmanager.child import PROCESS_NAME
from tests.spark.processes import command_of
from tests.tools.connectors.iceberg_tables import Lake
from tests.tools.programs.killed_sink import COUNT
from tests.tools.terminal import ROOT
from tests.tools.waiting import wait_until

PATIENCE_S = 120
MORE_CHECKPOINTS = 5
PROGRAM = "tests.tools.programs.killed_sink"


@dataclass
class Place:
    """`where`: for the program. `read`: the numbers that are there. `server`: what may be killed and started again."""

    where: str
    read: Callable[[], list[int]]
    server: Any = None


@contextlib.contextmanager
def delta(folder):
    path = f"{folder}/out"

    def read():
        if not deltalake.DeltaTable.is_deltatable(path):
            return []
        return deltalake.DeltaTable(path).to_pyarrow_table(columns=["n"]).column("n").to_pylist()

    yield Place(path, read)


@contextlib.contextmanager
def iceberg(folder):
    lake = Lake(folder / "lake")

    def read():
        with lake.catalog() as catalog:
            if not catalog.table_exists("shop.out"):
                return []
        found = lake.table("shop.out").scan(selected_fields=("n",)).to_arrow()
        return found.column("n").to_pylist()

    yield Place(json.dumps(lake.properties), read)


class Drivers:
    """One driver process after the other, for one job."""

    def __init__(self, folder: Path, kind: str, place: Place, lease: str = "3 s") -> None:
        """`lease`: after which another driver takes the job over, and after half of it a TaskManager ends that hears nothing."""
        self._command = [sys.executable, "-m", PROGRAM, str(folder), kind, place.where, lease]
        self._folder = folder
        self.processes: list[subprocess.Popen] = []
        self.begin()

    def begin(self) -> None:
        with (self._folder / "driver.log").open("a") as log:
            self.processes.append(
                subprocess.Popen(
                    self._command, stdout=log, stderr=log, cwd=ROOT, start_new_session=True
                )
            )

    @property
    def log(self) -> str:
        return (self._folder / "driver.log").read_text()

    @property
    def has_ended(self) -> bool:
        return self.processes[-1].poll() is not None

    def checkpoints(self) -> int:
        """The number of the last one that is complete."""
        found = (self._folder / "checkpoints").glob("*/chk-*/_metadata")
        return max((int(one.parent.name.removeprefix("chk-")) for one in found), default=0)

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.processes[-1].pid).children(recursive=True)

    def kill_taskmanager(self) -> None:
        running = [one for one in self.family() if PROCESS_NAME in command_of(one)]
        running[0].kill()

    def kill(self) -> None:
        self.processes[-1].kill()
        self.processes[-1].wait()
        self.begin()

    def end(self) -> None:
        for process in self.processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                for member in psutil.Process(process.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        member.kill()
            process.kill()
            process.wait()


def write_and_kill(
    drivers: Drivers, place: Place, kill: Callable[[], None], numbers: Iterable[int] = range(COUNT)
) -> None:
    """Kill twice while the job writes. Returns when the numbers are there and nothing has come twice later; the job is ended."""
    try:
        for part in (COUNT // 5, COUNT // 2):
            wait_until(
                lambda part=part: max(place.read(), default=0) >= part or drivers.has_ended,
                f"nothing is written\n{drivers.log}",
                PATIENCE_S,
            )
            assert not drivers.has_ended, drivers.log
            kill()
        wait_until(
            lambda: drivers.has_ended or set(numbers) <= set(place.read()),
            f"numbers are missing\n{drivers.log}",
            PATIENCE_S,
        )
        last = drivers.checkpoints() + MORE_CHECKPOINTS
        wait_until(
            lambda: drivers.has_ended or drivers.checkpoints() >= last,
            f"there are no more checkpoints\n{drivers.log}",
            PATIENCE_S,
        )
        assert not drivers.has_ended, drivers.log
    finally:
        drivers.end()
