"""How long the machine alone makes a thread wait: a process with one thread that works for 0.1 ms, 400 times a second.

python -m benchmarks.workloads.single_thread

Ends with its input; prints the longest step in ms. An event of a control loop takes as long, and cannot be shorter than this.
"""

from __future__ import annotations

import sys
import threading
import time

WORK_S = 0.0001
PAUSE_S = 0.0024


def longest_step_ms(ended: threading.Event) -> float:
    longest = 0.0
    while not ended.wait(PAUSE_S):
        began, worked = time.perf_counter(), time.thread_time()
        while time.thread_time() - worked < WORK_S:
            pass
        longest = max(longest, time.perf_counter() - began)
    return longest * 1000


if __name__ == "__main__":
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    print(longest_step_ms(over))
