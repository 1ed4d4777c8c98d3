"""The scheduler at scale: jobs of thousands of subtasks on null TaskManagers, no Spark.

Each run is a process of its own (`scheduler_job`). Peer: what Flink published for its 1.14 release, two
vertices of 10,000 subtasks joined all-to-all (project blog, "How We Improved Scheduler Performance
for Large-scale Jobs", January 2022): on a JVM, on a cluster, with real RPC. It is another machine,
so that the ratio says what is to be expected, not who is faster by how much.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from statistics import median

from benchmarks.figures import Figure

PEER = "Flink 1.14, published"
PEER_OF = {"initialise": 0.627, "deploy": 17.183, "restart set": 0.170, "memory": 2048.0}
PHASES = ("initialise", "deploy", "run", "restart set", "restart")
RESTART = ("fail and cancel", "deploy again", "run again")
SIZES = ((2, 1_000), (2, 4_000), (2, 10_000), (10, 1_000))
SPREAD_SIZES = ((2, 4_000), (2, 10_000))
LIMIT_S = 600

ABOUT = """\
JobMaster and ResourceManager as the driver runs them, with TaskManagers of ten slots that run
nothing. *initialise*: from the job graph to a scheduler. *deploy*: start scheduling, ask for
TaskManagers and slots, place every task, encode each deployment for the wire, decode it at its
TaskManager, read its list of producers (once per TaskManager and list) and build its gates. Input
channels are made when a task connects them, which no null task does. *run*: two reports of every
task. *restart set*: which tasks restart when one failed. *restart*: one task fails, the others of
its region are cancelled, deployed again and run again. *memory*: largest resident size of the
process, all null TaskManagers included. *spread*: taskmanager.load-balance.mode SLOTS. Parts are
seconds of the median run; what is missing to the whole is the benchmark's own. Where the CPU
seconds are far below the value, the machine had other work. Peer: Flink 1.14 on
a JVM, as its project published it for 2 x 10,000 all-to-all; its deployment goes to real machines,
its memory is the heap it was given. Ratio: ours over the peer's, less is better."""


def measure(_events: int | None, runs: int) -> list[Figure]:
    figures: list[Figure] = []
    for pattern in ("ALL_TO_ALL", "POINTWISE"):
        for is_spread, sizes in ((False, SIZES), (True, SPREAD_SIZES)):
            for vertices, parallelism in sizes:
                wanted = {
                    "pattern": pattern,
                    "vertices": vertices,
                    "parallelism": parallelism,
                    "is_spread": is_spread,
                }
                figures += figures(wanted, [_run(wanted) for _ in range(runs)])
    return figures


def _run(wanted: dict) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.workloads.scheduler_job", json.dumps(wanted)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    return json.loads(done.stdout)


def figures(wanted: dict, runs: Sequence[dict]) -> list[Figure]:
    name = f"{wanted['vertices']} x {wanted['parallelism']:,} {wanted['pattern'].lower()}"
    name += " spread" if wanted["is_spread"] else ""
    has_peer = name == "2 x 10,000 all_to_all"
    figures: list[Figure] = []
    for phase in PHASES:
        steps = RESTART if phase == "restart" else (phase,)
        values = [sum(run["phases"][step] for step in steps) for run in runs]
        cpu = median(sum(run["cpu"][step] for step in steps) for run in runs)
        settings = {
            "tasks": runs[0]["tasks"],
            "CPU seconds": f"{cpu:.3g}",
            **_parts(runs, values, steps),
        }
        if phase == "deploy":
            settings["bytes per deployment"] = round(runs[0]["deployment_bytes"])
        if phase == "restart set":
            settings["to restart"] = runs[0]["restarted"]
        peer = (PEER_OF[phase],) if has_peer and phase in PEER_OF else ()
        figures.append(_figure(f"scheduler {name}: {phase}", values, "s", peer, settings))
    settings = {
        "above the imports": f"{median(run['held_mib'] for run in runs):.0f} MiB when all tasks run"
    }
    peer = (PEER_OF["memory"],) if has_peer else ()
    values = [run["peak_mib"] for run in runs]
    figures.append(_figure(f"scheduler {name}: memory", values, "MiB", peer, settings))
    return figures


def _figure(
    name: str, values: Sequence[float], unit: str, peer: Sequence[float], settings: dict
) -> Figure:
    named = {**settings, "peer": PEER} if peer else settings
    return Figure(name, values, unit, peer, named, against="peer")


def _parts(runs: Sequence[dict], values: Sequence[float], steps: Sequence[str]) -> dict[str, str]:
    """Seconds per part in the run whose total is the median."""
    run = runs[min(range(len(runs)), key=lambda at: abs(values[at] - median(values)))]
    found: dict[str, float] = {}
    for step in steps:
        for part, seconds in run["parts"].get(step, {}).items():
            found[part] = found.get(part, 0.0) + seconds
    largest = sorted(found.items(), key=lambda entry: -entry[1])
    text = "; ".join(f"{part} {seconds:.2g}" for part, seconds in largest if seconds >= 0.005)
    return {"parts": text} if text else {}
