"""Word count on rows: lines -> words -> a running count per word, one update per word.

Floor: the same functions called in one plain Python loop over a dict, in one process; it too makes
the lines, and a list of updates per batch of lines. (The job has two processes.)
"""

import time
from collections.abc import Iterator

import numpy as np

from benchmarks.figures import Figure
from benchmarks.probes import TASKMANAGERS, TimedRun, timed_run
from benchmarks.workloads.range_source import RangeSource
from penstock.common import WatermarkStrategy
from penstock.datastream import DataStream
from penstock.engine.runtime.elements import Batch, RowBatch

DEFAULT_WORDS = 10_000_000
WORDS_PER_LINE = 10
DISTINCT_WORDS = 10_000
ZIPF_EXPONENT = 1.1
SEED = 7
POOL_LINES = 16_384  # made once, then repeated
BATCH_LINES = 512


def words_with_one(line: str) -> list[tuple[str, int]]:
    return [(word, 1) for word in line.split()]


def word_of(pair: tuple[str, int]) -> str:
    return pair[0]


def add(first: tuple[str, int], second: tuple[str, int]) -> tuple[str, int]:
    return first[0], first[1] + second[1]


def make_pool() -> list[str]:
    """The lines that are repeated; the same in every process."""
    weights = np.arange(1, DISTINCT_WORDS + 1, dtype=np.float64) ** -ZIPF_EXPONENT
    drawn = np.random.default_rng(SEED).choice(
        DISTINCT_WORDS, (POOL_LINES, WORDS_PER_LINE), p=weights / weights.sum()
    )
    words = [f"word{number}" for number in range(DISTINCT_WORDS)]
    return [" ".join([words[number] for number in line]) for line in drawn.tolist()]


def line_batches(low: int, high: int) -> Iterator[list[str]]:
    """Lines number [low, high)."""
    pool = make_pool()
    at = low
    while at < high:
        place = at % POOL_LINES
        lines = pool[place : place + min(BATCH_LINES, high - at)]
        yield lines
        at += len(lines)


def lines_of(low: int, high: int) -> Iterator[Batch]:
    return map(RowBatch, line_batches(low, high))


def running_counts(lines: DataStream) -> DataStream:
    return lines.flat_map(words_with_one).key_by(word_of).reduce(add)


def count_in_one_loop(lines: int) -> dict[str, int]:
    """The floor: what the job computes, with nothing of the engine in it."""
    table: dict[str, tuple[str, int]] = {}
    last: dict[str, int] = {}
    get = table.get
    for batch in line_batches(0, lines):
        updates: list[tuple[str, int]] = []
        append = updates.append
        for line in batch:
            for pair in words_with_one(line):
                word = word_of(pair)
                before = get(word)
                after = pair if before is None else add(before, pair)
                table[word] = after
                append(after)
        last.update(updates)
    return last


def run_once(lines: int) -> tuple[TimedRun, float]:
    """The job, and how long the floor takes."""
    run = job_of(lines)
    started = time.perf_counter()
    expected = count_in_one_loop(lines)
    floor_seconds = time.perf_counter() - started
    check(run, expected, lines)
    return run, floor_seconds


def check(run: TimedRun, expected: dict[str, int], lines: int) -> None:
    if run.kept != expected or run.records != lines * WORDS_PER_LINE:
        raise SystemExit("word_count: the job's counts differ from those of the plain loop")


def job_of(lines: int) -> TimedRun:
    return timed_run(
        RangeSource(lines, lines_of),
        WatermarkStrategy.no_watermarks(),
        running_counts,
        dict,
        "benchmark word count",
    )


def measure(words: int | None, runs: int) -> list[Figure]:
    lines = (words or DEFAULT_WORDS) // WORDS_PER_LINE
    words = lines * WORDS_PER_LINE
    done = [run_once(lines) for _ in range(runs)]
    floors = [words / floor_seconds for _, floor_seconds in done]
    settings = {
        "words": words,
        "distinct words": DISTINCT_WORDS,
        "Zipf": ZIPF_EXPONENT,
        "TaskManagers": TASKMANAGERS,
        "floor": "plain loop in one process",
    }
    rates = [words / run.data_seconds for run, _ in done]
    job_rates = [words / run.job_seconds for run, _ in done]
    return [
        Figure("word_count", rates, "words/s", floors, settings),
        Figure("word_count with start-up", job_rates, "words/s", floors, settings),
    ]
