"""A client that asks a REST server for every page, in rounds as a dashboard does.

python -m benchmarks.workloads.observation_client ADDRESS JOB VERTEX

One round begins every 3 s (Flink's `web.refresh-interval`), or as soon as the last one is answered. Ends with its input; prints one JSON object:
rounds, pages of a round, bytes of a round, seconds of the longest page and its path.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.client import HTTPConnection

from penstock.ops.rest.routes import ROUTES

ROUND_S = 3.0


def pages_of(job: str, vertex: str) -> list[str]:
    """The paths whose parameters are known, but for those that ask a TaskManager, live streams, and the archive, which is a file to be saved."""
    known = {"{jobid}": job, "{vertexid}": vertex, "{subtaskindex}": "0", "{attempt}": "0"}
    paths = []
    for route in ROUTES:
        if route.method != "GET" or route.changes or route.waits or route.view is None:
            continue
        if route.path.endswith("/archive"):
            continue
        path = route.path
        for name, value in known.items():
            path = path.replace(name, value)
        if "{" not in path:
            paths.append(path)
    metrics = f"/jobs/{job}/vertices/{vertex}/subtasks/metrics"
    return [*paths, f"{metrics}?get=metric0,metric1,metric2", f"{metrics}?get=metric0&agg=max"]


def poll(address: str, job: str, vertex: str) -> dict[str, object]:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    host = address.removeprefix("http://")
    connection = HTTPConnection(host, timeout=60)
    paths, rounds, size, longest = pages_of(job, vertex), 0, 0, (0.0, "")
    refused: set[str] = set()  # What this job does not have, as checkpoints: asked once.
    while not ended.is_set():
        began, size = time.monotonic(), 0
        for path in paths:
            asked = time.monotonic()
            connection.request("GET", path)
            answer = connection.getresponse()
            size += len(answer.read())
            if answer.status != 200:
                refused.add(path)
            longest = max(longest, (time.monotonic() - asked, path))
        paths = [path for path in paths if path not in refused]
        rounds += 1
        ended.wait(max(0.0, ROUND_S - (time.monotonic() - began)))
    return {
        "rounds": rounds,
        "pages": len(paths),
        "round_bytes": size,
        "longest_page_s": longest[0],
        "longest_page": longest[1],
    }


if __name__ == "__main__":
    print(json.dumps(poll(*sys.argv[1:])))
