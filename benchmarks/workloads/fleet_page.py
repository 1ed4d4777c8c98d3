"""An open page of the dashboard: the stream of a job's overview, a round each second.

python -m benchmarks.workloads.fleet_page ADDRESS JOB

Ends with its input; prints one JSON object: rounds, bytes of a round, seconds of the longest round, which is 1 s when the driver keeps up.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.client import HTTPConnection
from urllib.parse import urlencode

INTERVAL_MS = 1000


def paths_of(job: str) -> list[str]:
    """What the components of the page ask for (`ops/dashboard/app/pages/job/overview.js`)."""
    worst = f"/jobs/{job}/metrics/top-n?n=5&metric="
    parts = ("head", "bottleneck", "graph", "checkpoints/strip", "exceptions/groups")
    return [
        "/switches",
        f"/jobs/{job}",
        *(f"/jobs/{job}/{part}" for part in parts),
        f"/slots?jobid={job}",
        f"{worst}busyTimeMsPerSecond",
        f"{worst}backPressuredTimeMsPerSecond",
    ]


def show(address: str, job: str) -> dict[str, object]:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    connection = HTTPConnection(address.removeprefix("http://"), timeout=60)
    asked = [("interval", str(INTERVAL_MS)), *(("path", path) for path in paths_of(job))]
    connection.request("GET", f"/live?{urlencode(asked)}")
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    rounds, size, longest, began = 0, 0, 0.0, time.monotonic()
    refused: set[str] = set()
    while not ended.is_set() and (line := answer.readline()):
        size += len(line)
        if line.startswith(b"data: ") and b'"status": 200' not in line[:200]:
            refused.add(line[:200].decode())
        if line == b"event: round\n":
            now = time.monotonic()
            longest, began = max(longest, now - began), now
            rounds += 1
    return {
        "rounds": rounds,
        "round_bytes": size // max(1, rounds),
        "longest_round_s": longest,
        "refused": [one for one in refused if '"path"' in one],
    }


if __name__ == "__main__":
    print(json.dumps(show(*sys.argv[1:])))
