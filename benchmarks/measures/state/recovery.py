"""Recovery: how long there is no output after a TaskManager or the driver is gone.

A TaskManager of a keyed job on the embedded Spark is killed (-9), again and again at no particular moment: until records come
out of all subtasks again, and until a checkpoint has committed such records. A TaskManager is stopped (SIGSTOP), with
heartbeats every 0.5 s and a timeout of 3 s: until the driver takes it for lost. A driver is killed while another one
waits beside it (the audited job of `make chaos`, lease 4 s): until somebody who looks every half second finds committed
output again. Linux only.
"""

import contextlib
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import psutil

from benchmarks.figures import Figure
from benchmarks.probes import TASKMANAGERS, environment
from benchmarks.workloads.recovery_job import MarkingSink, pair_of
from benchmarks.workloads.running_sum import RunningSum, key_of
from penstock.common import WatermarkStrategy
from penstock.common.job_client import JobClient
from penstock.connectors.datagen import DataGeneratorSource
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.hosting.program.spark_host import SparkHost
from penstock.engine.hosting.taskmanager.child import PROCESS_NAME

KILLS_MIN: Final = 20
FREEZES_MIN: Final = 5
LEADERS_S: Final = 90.0
"""For so long drivers are killed, one after the other."""
INTERVAL_MS: Final = 200
RATE: Final = 2000
LIMIT_S: Final = 60.0
_POLL_S: Final = 0.005
ABOUT = __doc__.split("\n\n", maxsplit=1)[1].strip()


def _marks(folder: str, kind: str) -> dict[tuple[int, int], int]:
    """Nanoseconds by (subtask, attempt)."""
    found = {}
    for path in Path(folder).glob(f"{kind}-*-*"):
        if path.suffix != ".tmp":
            _, subtask, attempt = path.name.split("-")
            found[int(subtask), int(attempt)] = int(path.read_text(encoding="utf-8"))
    return found


class Losses(JobObserver):
    """When TaskManagers were taken for lost, seconds on the steady clock."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.lost = threading.Event()

    def on_task_manager_lost(self, event) -> None:
        self.at.append(time.monotonic())
        self.lost.set()


def _started(folder: str, options: dict[str, str]) -> tuple[JobClient, Losses]:
    """A running job that has committed something."""
    losses = Losses()
    env = environment({
        "execution.checkpointing.dir": f"{folder}/checkpoints",
        "execution.checkpointing.tolerable-failed-checkpoints": "1000",
        **options,
    })
    env.use_executor(ClusterExecutor(SparkHost(), losses))
    env.enable_checkpointing(INTERVAL_MS)
    source = DataGeneratorSource(pair_of, 1 << 50, RATE)
    pairs = env.from_source(source, WatermarkStrategy.no_watermarks(), "Pairs")
    pairs.key_by(key_of).process(RunningSum()).sink_to(MarkingSink(folder))
    client = env.execute_async("benchmark recovery")
    _wait(lambda: len(_marks(folder, "committed")) >= TASKMANAGERS, "a first commit")
    return client, losses


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"recovery: waited {LIMIT_S:.0f} s for {what}")
        time.sleep(_POLL_S)


def _taskmanagers() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if PROCESS_NAME in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:  # it ends while we look
            continue
    return found


# ---------------------------------------------------------------------- what is measured


def _killed(kills: int) -> tuple[list[float], list[float]]:
    """Seconds from each kill until all subtasks write again, and until all have committed what they wrote."""
    chance = random.Random(1)
    written, committed = [], []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        client, _ = _started(folder, {})
        for _ in range(kills):
            time.sleep(chance.uniform(0.5, 1.5))
            victim = chance.choice(_taskmanagers())
            newest = max(attempt for _, attempt in _marks(folder, "written"))
            killed_ns = time.monotonic_ns()
            victim.send_signal(signal.SIGKILL)
            written.append((_again(folder, "written", newest) - killed_ns) / 1e9)
            committed.append((_again(folder, "committed", newest) - killed_ns) / 1e9)
        client.cancel().result()
    return written, committed


def _again(folder: str, kind: str, attempt: int) -> int:
    """Waits until all subtasks have marks of later attempts. Returns: the last of those, ns."""
    _wait(lambda: len(_since(folder, kind, attempt)) >= TASKMANAGERS, f"'{kind}' of all subtasks")
    return max(_since(folder, kind, attempt))


def _since(folder: str, kind: str, attempt: int) -> list[int]:
    """Of the newest attempt of each subtask, if it is a later one."""
    newest: dict[int, tuple[int, int]] = {}
    for (subtask, number), at_ns in _marks(folder, kind).items():
        if number > attempt:
            newest[subtask] = max(newest.get(subtask, (0, 0)), (number, at_ns))
    return [at_ns for _, at_ns in newest.values()]


def _frozen(freezes: int) -> list[float]:
    """Seconds from each stop until the driver takes the TaskManager for lost."""
    options = {"heartbeat.interval": "500 ms", "heartbeat.timeout": "3 s"}
    chance = random.Random(2)
    detected = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        client, losses = _started(folder, options)
        for _ in range(freezes):
            time.sleep(chance.uniform(0.5, 1.5))
            newest = max(attempt for _, attempt in _marks(folder, "written"))
            losses.lost.clear()
            stopped = time.monotonic()
            chance.choice(_taskmanagers()).send_signal(signal.SIGSTOP)
            if not losses.lost.wait(LIMIT_S):
                raise SystemExit("recovery: a stopped TaskManager was not noticed")
            detected.append(losses.at[-1] - stopped)
            _again(folder, "committed", newest)
        client.cancel().result()
    return detected


def _led_by_another() -> list[float]:
    """Seconds from the kill of a leading driver until there is committed output again."""
    from audit.controller import AuditFailed, Controller, Options

    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        options = Options(
            Path(folder) / "run", seconds=LEADERS_S, every_s=1.0, faults=("kill_leader",)
        )
        try:
            with contextlib.redirect_stdout(sys.stderr):  # ours has figures only
                report = Controller(options).run()
        except AuditFailed as error:
            sys.exit(f"recovery: {error}")
    return [fault["output_again_s"] for fault in report.faults]


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that so many are not above."""
    return sorted(values)[max(0, -(-int(share * 100) * len(values) // 100) - 1)]


def measure(_events: int | None, runs: int) -> list[Figure]:
    kills = max(KILLS_MIN, runs)
    written, committed = _killed(kills)
    job = {"TaskManagers": TASKMANAGERS, "kills": kills}
    every = {"checkpoints every": f"{INTERVAL_MS} ms"}
    return [
        Figure(
            "TaskManager killed: records again",
            written,
            "s",
            (),
            job | {"p99": f"{percentile(written, 0.99):.3g} s", "goal": "p50 1.5 s, p99 4 s"},
        ),
        Figure(
            "TaskManager killed: committed again",
            committed,
            "s",
            (),
            job | every | {"p99": f"{percentile(committed, 0.99):.3g} s"},
        ),
        Figure(
            "TaskManager stopped: noticed",
            _frozen(max(FREEZES_MIN, runs)),
            "s",
            (),
            {"heartbeats": "0.5 s, 3 s", "goal": "3.5 s"},
        ),
        Figure(
            "leading driver killed beside a standby: committed again",
            _led_by_another(),
            "s",
            (),
            {"lease": "4 s", "checkpoints every": "1 s", "goal": "15 s"},
        ),
    ]
