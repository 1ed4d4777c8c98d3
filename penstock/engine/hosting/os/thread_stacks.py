"""Stacks of the threads of this process: of all of them once, or of some of them again and again.

Python reports no state of a thread. So a dump takes the state that Linux reports, and a sample asks
whether the thread has used a processor since the last sample. Source: Flink JvmUtils,
ThreadInfoSampleService.
"""

from __future__ import annotations

import gc
import operator
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Final, cast

from penstock.engine.model.ids import AttemptId
from penstock.engine.model.messages import SampledStack, SampleStacks, ThreadDump, ThreadText


def thread_frames() -> dict[int, FrameType]:
    """Return the innermost frame of each thread, by its ident. Any thread may call it.

    No garbage is collected meanwhile. Before 3.11.9, Python holds its lock of all threads here. A finalizer that begins a thread
    waits for that lock for ever, and so does any thread that has the turn meanwhile and begins or ends another one; the process
    stands still with it. Source: CPython, gh-106883.
    """
    # One call in C: no other thread has the turn between its steps, which might turn the collector on again.
    steps = (gc.isenabled, gc.disable, sys._current_frames)
    was_enabled, _, frames = map(operator.call, steps)
    if was_enabled:
        gc.enable()
    return cast("dict[int, FrameType]", frames)


class ThreadState(StrEnum):
    """The state that the operating system reports, in Java's words. A thread that waits for the
    interpreter's lock counts as waiting.
    """

    RUNNABLE = "RUNNABLE"
    WAITING = "WAITING"


@dataclass(frozen=True, slots=True)
class Frame:
    """`function`: module.function."""

    function: str
    file: str
    line: int


def thread_text(
    name: str, thread_id: int, state: ThreadState, frames: Sequence[Frame], most_frames: int
) -> str:
    """Return the text. `frames`: the innermost first; after `most_frames` of them a line has three dots."""
    lines = [f'"{name}" Id={thread_id} {state}']
    lines += [f"\tat {one.function}({one.file}:{one.line})" for one in frames[:most_frames]]
    if len(frames) > most_frames:
        lines.append("\t...")
    return "\n".join(lines) + "\n\n"


_TASKS: Final = Path("/proc/self/task")
_LEAST_SHARE: Final = 0.02
"""Of the time between two samples: a thread that has used less of a processor was waiting."""
_RUNS: Final = frozenset("RD")
"""Linux's states of a thread that runs, may run, or waits for a disk."""


def dump_threads(most_frames: int, names: Mapping[int, str] | None = None) -> ThreadDump:
    """Return all threads of this process with their Python frames, innermost first. `names`: by ident, for those that are
    known by another name than their own.
    """
    known = {one.ident: one for one in threading.enumerate() if one.ident is not None}
    given = names or {}
    found = []
    for ident, frame in thread_frames().items():
        thread = known.get(ident)
        native_id = ident if thread is None or thread.native_id is None else thread.native_id
        name = given.get(ident) or (thread.name if thread is not None else f"thread-{ident}")
        frames = [_described(one, line) for one, line in _inwards_out(frame)]
        text = thread_text(name, native_id, _state(native_id), frames, most_frames)
        found.append(ThreadText(name, text))
    return ThreadDump(tuple(sorted(found, key=lambda one: one.name)))


def _inwards_out(frame: FrameType | None) -> Iterator[tuple[FrameType, int]]:
    """Yield frames, innermost first, each with its line; -1: unknown."""
    while frame is not None:
        line = frame.f_lineno
        yield frame, -1 if line is None else line
        frame = frame.f_back


def _described(frame: FrameType, line: int) -> Frame:
    return Frame(_function(frame), frame.f_code.co_filename.rpartition("/")[2], line)


def _function(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"


def _state(native_id: int) -> ThreadState:
    try:
        status = (_TASKS / str(native_id) / "stat").read_text("utf-8", "replace")
    except OSError:
        return ThreadState.RUNNABLE  # No Linux, or it has just ended.
    is_running = status.rpartition(")")[2].split()[0] in _RUNS
    return ThreadState.RUNNABLE if is_running else ThreadState.WAITING


@dataclass(frozen=True, slots=True)
class SampledThread:
    """`waits`: whether the task waits for input or for room in its outputs; then it is off the processor."""

    attempt_id: AttemptId
    ident: int
    native_id: int
    waits: Callable[[], bool]


def sample_stacks(
    question: SampleStacks,
    threads: Sequence[SampledThread],
    sleep: Callable[[float], object] = time.sleep,
    cpu_ns: Callable[[int], int | None] | None = None,
) -> tuple[SampledStack, ...]:
    """Look at the threads as often as the question says; takes samples * delay. A thread that ends has fewer samples."""
    used_ns = cpu_ns or _cpu_ns
    hits: Counter[tuple[AttemptId, tuple[str, ...], bool]] = Counter()
    names: dict[tuple[object, int], str] = {}
    before = {one.ident: used_ns(one.native_id) for one in threads}
    looked_ns = time.monotonic_ns()
    for _ in range(question.samples):
        sleep(question.delay_ms / 1000)
        now_ns = time.monotonic_ns()
        frames = thread_frames()
        for one in threads:
            frame = frames.get(one.ident)
            if frame is None:
                continue
            used = used_ns(one.native_id)
            is_on = not one.waits() and _has_run(before[one.ident], used, now_ns - looked_ns)
            before[one.ident] = used
            hits[one.attempt_id, _names(frame, question.depth, names), is_on] += 1
        del frames  # It holds everything that the functions of other threads have.
        looked_ns = now_ns
    return _stacks(hits)


def _has_run(before: int | None, after: int | None, elapsed_ns: int) -> bool:
    """Whether a thread has used a processor. True where that is unknown."""
    if before is None or after is None:
        return True
    return after - before >= _LEAST_SHARE * elapsed_ns


def _names(frame: FrameType, depth: int, known: dict[tuple[object, int], str]) -> tuple[str, ...]:
    """Return the frames as texts, outermost first. Equal texts are one object, which is sent once."""
    found: list[str] = []
    for one, line in _inwards_out(frame):
        if len(found) == depth:
            break
        key = one.f_code, line
        name = known.get(key)
        if name is None:
            name = known[key] = f"{_function(one)}:{line}"
        found.append(name)
    return tuple(reversed(found))


def _stacks(
    hits: Mapping[tuple[AttemptId, tuple[str, ...], bool], int],
) -> tuple[SampledStack, ...]:
    sums: dict[tuple[AttemptId, tuple[str, ...]], list[int]] = {}
    for (attempt_id, frames, is_on), count in hits.items():
        sums.setdefault((attempt_id, frames), [0, 0])[0 if is_on else 1] += count
    return tuple(
        SampledStack(attempt_id, frames, on_cpu, off_cpu)
        for (attempt_id, frames), (on_cpu, off_cpu) in sums.items()
    )


def _cpu_ns(native_id: int) -> int | None:
    """Return for how long a thread of this process has run or waited for a processor; None:
    unknown, or the thread has ended.
    """
    try:
        numbers = (_TASKS / str(native_id) / "schedstat").read_text("ascii").split()
        return int(numbers[0]) + int(numbers[1])
    except (OSError, ValueError, IndexError):
        return None
