"""The frames of all threads, looked at while garbage waits."""

import subprocess
import sys
import threading
from pathlib import Path

from penstock.engine.hosting.os.thread_frames import thread_frames

ROOT = Path(__file__).parents[5]
GARBAGE_WAITS = """
import gc, operator, threading
from penstock.engine.hosting.os.thread_frames import thread_frames

class Garbage:
    "Its finalizer begins a thread, and leaves more garbage behind."

    def __init__(self, more):
        self.cycle, self.more = self, more

    def __del__(self):
        if self.more:
            Garbage(self.more - 1)
        threading.Thread(target=int).start()

go_on = threading.Event()
for _ in range(30):
    threading.Thread(target=go_on.wait).start()
gc.collect()
gc.disable()
gc.set_threshold(1)
for _ in range(20):
    Garbage(3)
    found = list(map(operator.call, (gc.enable, thread_frames, gc.disable)))[1]
    assert len(found) >= 31
go_on.set()
gc.enable()
gc.collect()
print("went on")
"""


def test_a_collection_of_garbage_does_not_begin_meanwhile():
    """`sys._current_frames` itself stands still for ever here, on Python 3.11.7."""
    command = [sys.executable, "-c", GARBAGE_WAITS]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert (ran.returncode, ran.stdout) == (0, "went on\n"), ran.stderr


def test_every_thread_has_its_innermost_frame():
    found = thread_frames()[threading.get_ident()]
    assert found.f_code.co_name == "thread_frames"
    assert found.f_back.f_code.co_name == "test_every_thread_has_its_innermost_frame"
