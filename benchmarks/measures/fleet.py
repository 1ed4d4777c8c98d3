"""A driver with 100, 300 and 1,000 TaskManagers of ten subtasks each, without Spark. See `fleet_job`.

One run of each, whatever `--runs` says.
"""

import json
import subprocess
import sys
from typing import Any

from benchmarks.figures import Figure

TASKMANAGERS = (100, 300, 1000)
LOST = 10
SECONDS = 32
SLOW_BEATS = {"heartbeat.interval": "2 s", "heartbeat.timeout": "12 s"}
LIMIT_S = 900

ABOUT = """\
A real driver, from the program (source, keyBy, process, sink) to the REST server with a page of the
dashboard open (the stream of a job's overview, a round each second), with checkpoints every 10 s.
Its TaskManagers live in three processes on the same machine and run nothing, but say over real
connections what real ones on Spark say: registration, slots, task states, heartbeats with the
counters of each task, metrics, splits, acknowledgements, and the heartbeats of a supervisor over a
connection of its own. *busy*: processor time of the JobManager's thread over the time. *wait of an
event*: from the moment it is posted to the loop, 50 times a second, to its turn. *collector*: share
of the time in which Python's collector of cycles runs, and no thread else. *checkpoint*: from its
trigger until the last notice of its completion is sent; the TaskManagers take no time to snapshot,
but share the machine, so this is the most that the driver adds. *redeployment*: ten TaskManagers
are lost at once, and every subtask of the job restarts, for all depend on all; until all run again,
with the restart's delay of 100 ms. The last rows are with `heartbeat.interval` 2 s, of which 500 ms
is the default on Spark. Goals are those for 1,000 TaskManagers. Sizes are in bytes of the largest.

What limits at 1,000 is one interpreter: the threads of the loop, of observation and of REST take
three quarters of its time together, and wait for each other. A checkpoint takes 1.4 to 1.9 s of
the loop's processor time, most of it for 10,000 acknowledgements, which come at once, and whatever
comes meanwhile waits behind them. So it does behind a redeployment: 10,000 cancels and deployments
and 40,000 answers to them. With 300 TaskManagers all goals but the longest wait are met."""


def measure(_events: int | None, _runs: int) -> list[Figure]:
    figures = []
    for count in TASKMANAGERS:
        figures += figures_of(count, _run(count, {}), {})
    of_beats = {"heartbeat.interval": SLOW_BEATS["heartbeat.interval"]}
    return figures + figures_of(TASKMANAGERS[-1], _run(TASKMANAGERS[-1], SLOW_BEATS), of_beats)


def figures_of(count: int, found: dict[str, Any], more: dict[str, str]) -> list[Figure]:
    steady, again = found["steady"], found["redeployed"]
    of_all = {"TaskManagers": count, "subtasks": found["subtasks"], **more}

    def figure(
        name: str, values: list[float], unit: str, goal: float | None = None, **settings: Any
    ) -> Figure:
        if goal is not None:
            word = "met" if max(values) < goal else "not met"
            settings = {"goal": f"< {goal:g}: {word}", **settings}
        return Figure(f"fleet of {count:,}: {name}", values, unit, (), {**of_all, **settings})

    largest = found["largest"]
    sizes = {kind: largest[kind] for kind in ("Heartbeat", "MetricsReport", "DeployTask")}
    others = {
        "percentiles": "p50 {wait_p50_ms:.3g}, p99 {wait_p99_ms:.3g} ms".format(**steady),
        "collector": f"{steady['collected_share']:.0%}, at most "
        f"{steady['collected_max_ms']:.0f} ms",
    }
    took = ", ".join(f"{one:.2g}" for one in found["checkpoints_cpu_s"])
    worked = {"of the loop's processor time": took}
    most = found["most_resident_mib"]
    threads = {
        name.removesuffix("_busy"): f"{share:.0%}"
        for name, share in steady.items()
        if name.endswith("_busy") and name != "jobmanager_busy"
    }
    return [
        figure("until all run", [found["start"]["seconds"]], "s", **sizes),
        figure("control loop busy", [steady["jobmanager_busy"] * 100], "%", 40, **threads),
        figure("longest wait of an event", [steady["wait_max_ms"]], "ms", 100, **others),
        figure("checkpoint", found["checkpoints_s"], "s", 1, **worked),
        figure("redeployment", [again["seconds"]], "s", 5, lost=LOST),
        figure("longest wait of an event in a redeployment", [again["wait_max_ms"]], "ms", 100),
        figure("memory of the driver, most", [most], "MiB", 1000, load=round(found["load"])),
    ]  # fmt: skip


def _run(count: int, options: dict[str, str]) -> dict[str, Any]:
    order = {
        "taskmanagers": count,
        "lost": LOST,
        "seconds": SECONDS,
        "has_page": True,
        "options": options,
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.workloads.fleet_job", json.dumps(order)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
