"""A program with keyed state whose declared types a test changes between a savepoint and the restore."""

from __future__ import annotations

from pathlib import Path

from penstock.common import Types, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from tests.tools.output_files import files_below, lines_in
from tests.tools.programs.checkpoint_programs import (
    HeldSource,
    Stage,
    Watcher,
    file_sink,
    restarting_environment,
    wait_until_running,
)

SPLITS, HELD_AT, COUNT = 2, 30, 60
KEYS = 12
LEAST = -5
"""Keys are whole numbers from here on: a LONG below zero has another hash than the INT."""


def key_number(value) -> int:
    return value[1] % KEYS + LEAST


class Count(KeyedProcessFunction):
    """Counts the records of each key. `counted`: the descriptor of the count; `start`: the first count; `next_of`: from one to the next."""

    def __init__(self, counted=None, start=1, next_of=lambda count: count + 1) -> None:
        self.counted = counted or ValueStateDescriptor("count", Types.LONG())
        self.start = start
        self.next_of = next_of

    def open(self, runtime_context):
        self.count = runtime_context.get_state(self.counted)

    def process_element(self, value, ctx):
        former = self.count.value()
        now = self.start if former is None else self.next_of(former)
        self.count.update(now)
        yield f"{ctx.get_current_key()!r} {now!r}"


def counts(env, stage: str, out: Path, keyed, function=None) -> None:
    """`keyed`: makes the keyed stream of the stream of (split, number)."""
    source = HeldSource(stage, SPLITS, COUNT, HELD_AT)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "held").uid("held")
    counted = keyed(stream).process(function or Count()).name("Count").uid("count")
    counted.sink_to(file_sink(out)).uid("out")


def savepoint_of(tmp_path: Path, backend: str, keyed, function=None, **settings: str) -> str:
    """Counts up to where the splits are held, and stops with a savepoint. Returns its folder."""
    stage = Stage(str(tmp_path))
    env = environment(tmp_path, backend, 2, **settings)
    counts(env, stage.name, tmp_path / "first", keyed, function)
    client = env.execute_async("before")
    stage.wait_until_held(SPLITS)
    wait_until_running(client)
    location = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    stage.gate.set()
    return location


def restored(
    tmp_path: Path, backend: str, savepoint: str, keyed, function=None, *, parallelism=3, **more
) -> list[str]:
    """Goes on with the savepoint to the end. Returns the lines that were written since then."""
    stage = Stage(f"{tmp_path} restored")
    stage.gate.set()
    more = {"execution__state-recovery__path": savepoint} | more
    env = environment(tmp_path, backend, parallelism, **more)
    counts(env, stage.name, tmp_path / "second", keyed, function)
    env.execute("after")
    return lines_in([
        path for path in files_below(tmp_path / "second") if not path.name.startswith(".")
    ])


def environment(tmp_path: Path, backend: str, parallelism: int, **more: str):
    settings = {"state__backend__type": backend, "io__tmp__dirs": str(tmp_path)} | more
    return restarting_environment(Watcher(), parallelism=parallelism, **settings)


def expected_counts() -> dict[int, list[int]]:
    """What is counted after the savepoint, by key, in order: all splits have the same numbers."""
    before = [number % KEYS + LEAST for number in range(HELD_AT)] * SPLITS
    after = [number % KEYS + LEAST for number in range(HELD_AT, COUNT)] * SPLITS
    return {
        key: [before.count(key) + place + 1 for place in range(after.count(key))]
        for key in range(LEAST, LEAST + KEYS)
    }
