"""Nexmark query 5 on columns: the hottest auctions of ten seconds, every two seconds.

The job is that of examples/nexmark_q5.py. Floor: one pass with numpy over the same generated
batches, in one process. Persons, auctions and bids (1:3:46) are generated and counted on both
sides.
"""

import time
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Figure
from benchmarks.probes import TASKMANAGERS, TimedRun, timed_run
from examples.nexmark_q5 import SIZE_S, SLIDE_S, hot_items
from penstock.common import WatermarkStrategy
from penstock.connectors.nexmark import BID, DEFAULT_BATCH_EVENTS, NexmarkGenerator, NexmarkSource

DEFAULT_EVENTS = 10_000_000
EVENTS_PER_SECOND = 10_000  # of event time
SEED = 0
COLUMNS = ("kind", "auction", "ts")
SLIDE_MS = SLIDE_S * 1000
PANES_PER_WINDOW = SIZE_S // SLIDE_S

Counts = tuple[int, NDArray[np.int64]]  # the first auction, and the bids of it and of those after


def hottest_in_one_pass(events: int) -> list[tuple[int, int, int]]:
    """The floor: (window end, auction, bids), sorted, with nothing of the engine in it."""
    generator = NexmarkGenerator(SEED, EVENTS_PER_SECOND, COLUMNS)
    panes: dict[int, list[Counts]] = defaultdict(list)
    for start in range(0, events, DEFAULT_BATCH_EVENTS):
        batch = generator.batch(start, min(events, start + DEFAULT_BATCH_EVENTS))
        kinds, auctions, stamps = (batch.column(name).to_numpy() for name in COLUMNS)
        is_bid = kinds == BID
        _count_panes(auctions[is_bid], stamps[is_bid] // SLIDE_MS, panes)
    results: list[tuple[int, int, int]] = []
    if panes:
        for last in range(min(panes), max(panes) + PANES_PER_WINDOW):
            first = last - PANES_PER_WINDOW + 1
            pieces = [piece for pane in range(first, last + 1) for piece in panes.get(pane, ())]
            if pieces:
                results.extend(_hottest((last + 1) * SLIDE_MS, pieces))
    return results


def _count_panes(
    auctions: NDArray[np.int64], panes: NDArray[np.int64], into: dict[int, list[Counts]]
) -> None:
    """Bids per auction of each slide; the events are in the order of time."""
    if not len(panes):
        return
    numbers, starts = np.unique(panes, return_index=True)
    for number, inside in zip(numbers.tolist(), np.split(auctions, starts[1:]), strict=True):
        low = int(inside.min())
        into[number].append((low, np.bincount(inside - low)))


def _hottest(end: int, pieces: list[Counts]) -> list[tuple[int, int, int]]:
    low = min(first for first, _ in pieces)
    total = np.zeros(max(first + len(bids) for first, bids in pieces) - low, np.int64)
    for first, bids in pieces:
        total[first - low : first - low + len(bids)] += bids
    most = int(total.max())
    return [(end, low + int(place), most) for place in np.flatnonzero(total == most)]


def run_once(events: int) -> tuple[TimedRun, float]:
    """The job, and how long the floor takes."""
    run = timed_run(
        NexmarkSource(events, SEED, EVENTS_PER_SECOND, columns=COLUMNS),
        WatermarkStrategy.for_monotonous_timestamps(),
        hot_items,
        list,
        "benchmark q5",
    )
    started = time.perf_counter()
    expected = hottest_in_one_pass(events)
    floor_seconds = time.perf_counter() - started
    if sorted(run.kept) != expected:
        raise SystemExit("q5: the job's rows differ from those of the plain pass")
    return run, floor_seconds


def measure(events: int | None, runs: int) -> list[Figure]:
    events = events or DEFAULT_EVENTS
    done = [run_once(events) for _ in range(runs)]
    floors = [events / floor_seconds for _, floor_seconds in done]
    settings = {
        "events": events,
        "persons:auctions:bids": "1:3:46",
        "events/s of event time": EVENTS_PER_SECOND,
        "TaskManagers": TASKMANAGERS,
        "floor": "numpy in one process",
    }
    rates = [events / run.data_seconds for run, _ in done]
    job_rates = [events / run.job_seconds for run, _ in done]
    return [
        Figure("q5", rates, "events/s", floors, settings),
        Figure("q5 with start-up", job_rates, "events/s", floors, settings),
    ]
