"""Nexmark query 5, hot items: the auctions with the most bids of the last ten seconds, every two
seconds.

    python examples/nexmark_q5.py [--events N] [--seed N] [--parallelism N] [--check]

The events are generated, in columns; no Python object is made of a bid. Prints one line for each
window: when it ends, how many bids its hottest auctions have, and which ones these are (all, if
they are several).
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common import Time, WatermarkStrategy
from penstock.datastream import DataStream, ProcessAllWindowFunction, StreamExecutionEnvironment
from penstock.datastream.columns import col, count
from penstock.datastream.connectors.nexmark import BID, NexmarkGenerator, NexmarkSource
from penstock.datastream.window import SlidingEventTimeWindows, TimeWindow, TumblingEventTimeWindows

SIZE_S = 10
SLIDE_S = 2


def hottest_here(counts: pa.RecordBatch) -> pa.RecordBatch:
    """Of the windows of one subtask: only the auctions that may be the hottest, so that little has to
    meet in one place. Rows of one window stand together. `at`: the last millisecond of the window.
    """
    ends, bids = (counts.column(name).to_numpy() for name in ("window_end", "bids"))
    starts = np.flatnonzero(np.diff(ends, prepend=0))  # no window ends at 0
    most = np.maximum.reduceat(bids, starts)
    rows = np.diff(starts, append=len(ends))
    kept = counts.filter(pa.array(bids == np.repeat(most, rows)))
    return kept.append_column("at", pc.subtract(kept.column("window_end"), 1))


class Hottest(ProcessAllWindowFunction[Any, tuple[int, int, int], TimeWindow]):
    """Of the counts of one window: the largest, with each auction that has it."""

    def process(
        self, context: ProcessAllWindowFunction.Context, elements: Iterable[Any]
    ) -> Iterable[tuple[int, int, int]]:
        most = 0
        hottest: list[tuple[int, int, int]] = []
        for row in elements:
            if row.bids > most:
                most, hottest = row.bids, []
            if row.bids == most:
                hottest.append((row.window_end, row.auction, row.bids))
        return hottest


def hot_items(events: DataStream) -> DataStream:
    """(window end, auction, bids) of the hottest auctions of each window."""
    counts = (
        events
        .filter(col("kind") == BID)
        .key_by(col("auction"))
        .window(SlidingEventTimeWindows.of(Time.seconds(SIZE_S), Time.seconds(SLIDE_S)))
        .aggregate(count().alias("bids"))
        .name("Bids per auction")
        .map_batches(hottest_here, timestamp_column="at")
        .name("Hottest here")
    )
    # The counts of one window all have its last millisecond as timestamp, so that a window of one
    # slide holds the counts of exactly one sliding window.
    per_window = counts.window_all(TumblingEventTimeWindows.of(Time.seconds(SLIDE_S)))
    return per_window.process(Hottest()).name("Hottest")


def expected_q5(
    events: int, seed: int = 0, events_per_second: int = 10_000
) -> list[tuple[int, int, int]]:
    """The same result, sorted, counted window by window: slow, and with nothing of the engine in
    it.
    """
    data = NexmarkGenerator(seed, events_per_second).batch(0, events)
    kinds, auctions, stamps = (data.column(n).to_numpy() for n in ("kind", "auction", "ts"))
    auctions, stamps = auctions[kinds == BID], stamps[kinds == BID]
    results: list[tuple[int, int, int]] = []
    if not len(stamps):
        return results
    size, slide = SIZE_S * 1000, SLIDE_S * 1000
    first_end = int(stamps.min()) // slide * slide + slide
    last_end = int(stamps.max()) // slide * slide + size
    for end in range(first_end, last_end + 1, slide):
        inside = auctions[(stamps >= end - size) & (stamps < end)]
        ids, bids = np.unique(inside, return_counts=True)
        most = int(bids.max())
        results.extend((end, int(auction), most) for auction in ids[bids == most])
    return sorted(results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000, help="how many to generate")
    parser.add_argument("--seed", type=int, default=0, help="other seeds give other events")
    parser.add_argument("--parallelism", type=int, help="subtasks per operator")
    parser.add_argument("--check", action="store_true", help="compare with a plain computation")
    arguments = parser.parse_args()

    env = StreamExecutionEnvironment.get_execution_environment()
    if arguments.parallelism:
        env.set_parallelism(arguments.parallelism)
    source = NexmarkSource(arguments.events, arguments.seed, columns=("kind", "auction", "ts"))
    events = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "Nexmark")
    started = time.monotonic()
    with hot_items(events).execute_and_collect("Nexmark q5") as rows:
        results = sorted(rows)
    seconds = time.monotonic() - started

    windows = defaultdict(list)
    for window_end, auction, bids in results:
        windows[window_end, bids].append(auction)
    for (window_end, bids), auctions in windows.items():
        print(f"{window_end}\t{bids}\t{' '.join(map(str, auctions))}")
    print(f"TOTAL events={arguments.events} windows={len(windows)} seconds={seconds:.1f}")
    if arguments.check:
        is_right = results == expected_q5(arguments.events, arguments.seed)
        print(f"CHECK {'equal' if is_right else 'DIFFERENT'}")
        raise SystemExit(not is_right)


if __name__ == "__main__":
    main()
