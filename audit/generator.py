"""A process that writes the log in step with the clock, until its stdin ends: `python -m audit.generator DIRECTORY --rate 4000`."""

from __future__ import annotations

import argparse
import select
import sys
import time
from collections.abc import Callable

from audit.event_log import DISORDER_MS, LogWriter, Plan

BLOCK_S = DISORDER_MS / 1000
BLOCKS_PER_SYNC = 20


def generate(folder: str, plan: Plan, waits: Callable[[float], bool]) -> dict[int, int]:
    """Blocks, each when its event time has come. Returns: records of each source.

    `waits`: for so many seconds, or until there is to be no more: then it says False.
    """
    writer = LogWriter(folder, plan)
    started = time.monotonic()
    synced = 0
    while waits(BLOCK_S):
        writer.append(int((time.monotonic() - started) / BLOCK_S) + 1 - writer.blocks)
        if writer.blocks - synced >= BLOCKS_PER_SYNC:
            writer.sync()
            synced = writer.blocks
    writer.close()
    return writer.counts


def stdin_is_open(seconds: float) -> bool:
    """What is said there does not matter, only its end."""
    readable, _, _ = select.select([sys.stdin], [], [], seconds)
    return not readable or bool(sys.stdin.read(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    defaults = Plan()
    parser.add_argument("--rate", type=int, default=defaults.rate)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    args = parser.parse_args()
    counts = generate(args.folder, Plan(rate=args.rate, seed=args.seed), stdin_is_open)
    print(f"{sum(counts.values())} records in {len(counts)} sources")


if __name__ == "__main__":
    main()
