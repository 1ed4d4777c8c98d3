"""Rescaling: how long there is no output while a job gets another parallelism.

A keyed job with 100 MB of state on the heap goes from 2 to 4 TaskManagers and back, again and again. Counted is the time from
the last record that any subtask wrote before to the first one that each subtask writes after; new TaskManagers start before
that, while the job runs on. The floor is what a restart from a checkpoint costs at least: reading the state's files once. Linux only. Call it alone: it starts a Spark of more cores than the others do.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from benchmarks.figures import Figure
from benchmarks.measures.state.recovery import percentile
from benchmarks.probes import environment
from benchmarks.workloads.rescale_job import BYTES_OF_A_KEY, NUMBERS, Hoard, TimelineSink, key_of
from penstock.common import WatermarkStrategy
from penstock.common.job_client import JobClient
from penstock.connectors.datagen import DataGeneratorSource
from penstock.engine.model.options.cluster import SparkOptions

FEW: Final = 2
MANY: Final = 4
TURNS_MIN: Final = 10
KEYS: Final = 25_000
RATE: Final = 5000
LIMIT_S: Final = 120.0
_POLL_S: Final = 0.01
ABOUT = __doc__.split("\n\n", maxsplit=1)[1].strip()

Timelines = Mapping[tuple[int, int], tuple[int, int, int]]
"""(first ns, last ns, records) by (subtask, attempt)."""


def measure(_events: int | None, runs: int) -> list[Figure]:
    turns = max(TURNS_MIN, runs)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        timelines = Path(folder, "timelines")
        timelines.mkdir()
        client = _started(folder, timelines)
        _wait(lambda: _records(timelines) >= 2 * KEYS, "all state")
        up, down, floors = [], [], []
        for _ in range(turns):
            up.append(_rescaled(client, timelines, MANY))
            floors.append(_read_once(Path(folder, "checkpoints")))
            down.append(_rescaled(client, timelines, FEW))
        client.cancel().result()
    state = {"state": f"{KEYS * BYTES_OF_A_KEY / 1e6:.0f} MB", "changes": turns}
    goal = {"goal": "p50 1 s, p99 2 s"}
    return [
        Figure(
            f"parallelism {FEW} to {MANY}: no output for", up, "s", floors,
            state | goal | {"p99": f"{percentile(up, 0.99):.3g} s"},
        ),
        Figure(
            f"parallelism {MANY} to {FEW}: no output for", down, "s", floors,
            state | goal | {"p99": f"{percentile(down, 0.99):.3g} s"},
        ),
    ]  # fmt: skip


def _started(folder: str, timelines: Path) -> JobClient:
    env = environment({
        SparkOptions.MASTER.key: f"local[{MANY + 1}]",
        "execution.checkpointing.dir": f"{folder}/checkpoints",
        "penstock.elastic.profile": "penstock",
        "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0 ms",
        "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "0 ms",
    })
    env.enable_checkpointing(1000)
    source = DataGeneratorSource(lambda number: number % KEYS, 1 << 50, RATE)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "Numbers")
    numbers.key_by(key_of).process(Hoard()).name("Hoard").sink_to(TimelineSink(str(timelines)))
    return env.execute_async("benchmark rescale")


def _rescaled(client: JobClient, timelines: Path, parallelism: int) -> float:
    """Seconds without output."""
    before = _timelines(timelines)
    newest = max(attempt for _, attempt in before)
    client.rescale({"Hoard": parallelism}).result()

    def after() -> Timelines:
        return {at: one for at, one in _timelines(timelines).items() if at[1] > newest}

    _wait(lambda: len(after()) >= parallelism, f"records of {parallelism} subtasks")
    last_ns = max(one[1] for at, one in _timelines(timelines).items() if at[1] == newest)
    return (max(one[0] for one in after().values()) - last_ns) / 1e9


def _timelines(folder: Path) -> Timelines:
    found = {}
    for path in folder.iterdir():
        subtask, attempt = path.name.split("-")
        told = path.read_bytes()
        if len(told) == 8 * NUMBERS:
            first, last, count = (int.from_bytes(told[i : i + 8], "big") for i in (0, 8, 16))
            found[int(subtask), int(attempt)] = first, last, count
    return found


def _records(folder: Path) -> int:
    return sum(count for _, _, count in _timelines(folder).values())


def _read_once(folder: Path) -> float:
    """Seconds to read the files of the newest checkpoint."""
    newest = max(folder.rglob("_metadata"), key=lambda path: path.stat().st_mtime).parent
    began = time.perf_counter()
    for path in newest.rglob("*"):
        if path.is_file():
            path.read_bytes()
    return time.perf_counter() - began


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"rescale: waited {LIMIT_S:.0f} s for {what}")
        time.sleep(_POLL_S)
