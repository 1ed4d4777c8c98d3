"""A process that writes the log in step with the clock: `python -m audit.generator DIRECTORY --seconds 60 --rate 4000`."""

from __future__ import annotations

import argparse
import time

from audit.event_log import DISORDER_MS, LogWriter, Plan


def generate(folder: str, plan: Plan, seconds: float) -> dict[int, int]:
    """Blocks until the seconds are over, each when its event time has come. Returns: records of each source."""
    writer = LogWriter(folder, plan)
    started = time.monotonic()
    total = int(seconds * 1000 / DISORDER_MS)
    synced = 0
    while writer.blocks < total:
        due = min(total, int((time.monotonic() - started) * 1000 / DISORDER_MS) + 1)
        if due > writer.blocks:
            writer.append(due - writer.blocks)
        if writer.blocks - synced >= 1000 / DISORDER_MS:
            writer.sync()
            synced = writer.blocks
        time.sleep(DISORDER_MS / 1000)
    writer.close()
    return writer.counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    counts = generate(args.folder, Plan(rate=args.rate, seed=args.seed), args.seconds)
    print(f"{sum(counts.values())} records in {len(counts)} sources")


if __name__ == "__main__":
    main()
