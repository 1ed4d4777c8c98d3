"""Dumps and samples of threads of this process."""

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.engine.hosting.os.thread_stacks import (
    SampledThread,
    dump_threads,
    sample_stacks,
    thread_frames,
)
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, VertexId
from penstock.engine.model.messages import SampleStacks
from tests.tools.waiting import wait_until

ROOT = Path(__file__).parents[5]
GARBAGE_WAITS = """
import gc, operator, threading
from penstock.engine.hosting.os.thread_stacks import thread_frames

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


ATTEMPT = AttemptId(ExecutionVertexId(VertexId("v"), 0), 0)


class Standing:
    """A thread that stands in `stands_here`, `deep` calls further in."""

    def __init__(self, deep=0):
        self.go_on, self.stands = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.down, args=(deep,), name="standing")
        self.thread.start()
        self.stands.wait()

    def down(self, deep):
        if deep:
            self.down(deep - 1)
        else:
            self.stands_here()

    def stands_here(self):
        self.stands.set()
        self.go_on.wait()

    def end(self):
        self.go_on.set()
        self.thread.join()


@pytest.fixture
def standing():
    made = []

    def stand(deep=0):
        made.append(Standing(deep))
        return made[-1]

    yield stand
    for one in made:
        one.end()


def text_of(name, *arguments):
    (found,) = [one.text for one in dump_threads(*arguments).threads if one.name == name]
    return found


def test_a_dump_has_every_thread_with_its_frames_innermost_first(standing):
    thread = standing().thread
    lines = text_of("standing", 50).splitlines()
    assert lines[0].startswith(f'"standing" Id={thread.native_id} ')
    places = re.findall(r"Standing\.(\w+)\(test_thread_stacks\.py:\d+\)", "\n".join(lines))
    assert places == ["stands_here", "down"]
    assert f"\tat {__name__}.Standing.stands_here(test_thread_stacks.py:" in "\n".join(lines)
    named = {one.name for one in dump_threads(50).threads}
    assert {one.name for one in threading.enumerate()} <= named


def test_the_state_of_a_thread_is_what_the_system_says(standing):
    """Who has no call under way to end waits sooner or later; who dumps runs."""
    standing()
    wait_until(
        lambda: text_of("standing", 1).splitlines()[0].endswith(" WAITING"), "it does not wait"
    )
    own = text_of(threading.current_thread().name, 1).splitlines()[0]
    assert own.endswith(" RUNNABLE")


def test_a_dump_is_bounded_in_frames_of_a_thread(standing):
    standing(100)
    lines = text_of("standing", 7).rstrip().splitlines()
    assert len(lines) == 1 + 7 + 1
    assert lines[-1] == "\t..."


def test_a_thread_of_a_task_has_the_tasks_name(standing):
    ident = standing().thread.ident
    assert text_of("Map (1/2)#0", 50, {ident: "Map (1/2)#0"}).startswith('"Map (1/2)#0" Id=')


def sampled(one, *, waits=False, cpu_ns=(), samples=4, depth=100):
    """Samples of a standing thread; `cpu_ns`: what it has used, at the beginning and at each sample."""
    used = iter(cpu_ns)
    threads = [SampledThread(ATTEMPT, one.thread.ident, one.thread.native_id, lambda: waits)]
    question = SampleStacks((ATTEMPT,), samples, 0, depth)
    told = None if not cpu_ns else lambda _native_id: next(used)
    return sample_stacks(question, threads, lambda _s: None, told)


def test_samples_have_frames_outermost_first_and_those_who_use_no_processor_are_off_it(standing):
    (stack,) = sampled(standing(), cpu_ns=[5] * 5)
    assert (stack.attempt_id, stack.on_cpu, stack.off_cpu) == (ATTEMPT, 0, 4)
    inner = [frame.rpartition(":")[0] for frame in stack.frames if __name__ in frame]
    assert inner == [f"{__name__}.Standing.down", f"{__name__}.Standing.stands_here"]
    assert all(frame.rpartition(":")[2].isdigit() for frame in stack.frames)


def test_who_uses_a_processor_between_samples_is_on_it(standing):
    second = 10**9
    (stack,) = sampled(standing(), cpu_ns=[0, second, 2 * second, 2 * second, 3 * second])
    assert (stack.on_cpu, stack.off_cpu) == (3, 1)


def test_a_task_that_waits_is_off_whatever_its_thread_has_used(standing):
    (stack,) = sampled(standing(), waits=True, cpu_ns=[0, 10**9, 2 * 10**9, 3 * 10**9, 4 * 10**9])
    assert (stack.on_cpu, stack.off_cpu) == (0, 4)


def test_where_nobody_tells_what_a_thread_has_used_it_counts_as_running(standing):
    (stack,) = sampled(standing(), cpu_ns=[None] * 5)
    assert (stack.on_cpu, stack.off_cpu) == (4, 0)


def test_a_deep_stack_keeps_its_innermost_frames(standing):
    (stack,) = sampled(standing(50), depth=5)
    assert len(stack.frames) == 5
    assert any("stands_here" in frame for frame in stack.frames)


def test_a_thread_that_has_ended_has_no_samples(standing):
    one = standing()
    one.end()
    assert sampled(one) == ()
