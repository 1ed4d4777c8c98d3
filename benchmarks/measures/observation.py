"""What it costs a job of 10,000 subtasks that a client polls every page of its REST server, without Spark.

Runs take turns: without server and client (the floor), and with both. See `observation_job`.
"""

import json
import subprocess
import sys
from typing import Any

from benchmarks.figures import Figure

PARALLELISM = 5_000
TASKMANAGERS = 200
SECONDS = 20
LIMIT_S = 900

ABOUT = """\
Two vertices of 5,000 subtasks on 200 null TaskManagers, which are one process and speak over the
product's wire: a heartbeat each every 500 ms with the counters of 50 subtasks, and every 10 s a
report with 40 metrics of each subtask. A client in a third process asks for every page that does
not ask a TaskManager, one after the other; a round begins every 3 s, as those of Flink's
dashboard, or when the last one is answered. *processor time of an event*: of the JobManager's
thread, over the messages that it took. *longest event*, *p99.9*: from the moment a message is
decoded until it has been taken, by the clock, so that waiting for the interpreter and for a core
counts. *longest event, processor time*: of that thread alone. Floor: the same job without server
and client. *longest step of a thread alone*: beside the job, with and without client, a process
with one thread works for 0.1 ms 400 times a second, as long as a usual event; what its longest step
takes is the machine's doing. Four processes share the machine's cores.
Python's collector of cycles was the longest event once: it looked at all objects six times in 20 s,
for 25 to 46 ms of processor time, in which no thread runs (without a client 58 ms, with one 46)."""


def measure(_events: int | None, runs: int) -> list[Figure]:
    floors: list[dict[str, Any]] = []
    polled: list[dict[str, Any]] = []
    for _ in range(runs):
        floors.append(_run(is_polled=False))
        polled.append(_run(is_polled=True))
    settings = {"subtasks": 2 * PARALLELISM, "TaskManagers": TASKMANAGERS, "seconds": SECONDS}

    def figure(name: str, key: str) -> Figure:
        values = [one[key] for one in polled]
        return Figure(name, values, "ms", [one[key] for one in floors], settings)

    for one in (*floors, *polled):
        one["cpu_ms"] = one["cpu_s"] / one["events"] * 1000
    pages = {
        "pages": polled[0]["pages"],
        "MB": round(polled[0]["round_bytes"] / 1e6, 1),
        "rounds": [one["rounds"] for one in polled],
        "longest page": max((one["longest_page_s"], one["longest_page"]) for one in polled)[1],
    }
    longest = [one["longest_page_s"] for one in polled]
    return [
        figure("control loop with a client, processor time of an event", "cpu_ms"),
        figure("control loop with a client, p99.9 of its events", "p999_ms"),
        figure("control loop with a client, longest event", "longest_ms"),
        figure("control loop with a client, longest event, processor time", "longest_worked_ms"),
        figure("longest step of a thread alone", "longest_alone_ms"),
        Figure("longest page of the client", longest, "s", (), pages),
    ]


def _run(*, is_polled: bool) -> dict[str, Any]:
    order = {
        "parallelism": PARALLELISM,
        "taskmanagers": TASKMANAGERS,
        "seconds": SECONDS,
        "serves": is_polled,
        "polls": is_polled,
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.workloads.observation_job", json.dumps(order)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found
