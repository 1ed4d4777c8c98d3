"""All curves as a table. `python -m simulation autoscaler --help`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from simulation.autoscaler.curves import CURVES
from simulation.autoscaler.driving import CurveResult, drive_all

_HEADS = ("curve", "seed", "rescales", "slots", "least", "ratio", "lag s", "settled s", "events")
_FORM = "{:<11} {:>5} {:>8} {:>6} {:>6} {:>6} {:>7} {:>9}  {}"


def lines(results: Sequence[CurveResult]) -> Iterator[str]:
    """Yield a line for each run. Slots are means over the times when the job must have settled."""
    yield _FORM.format(*_HEADS)
    for result in results:
        mean, events = result.mean_slots, ", ".join(sorted(result.kinds())) or "-"
        least, ratio, settled = "-", "-", "-"
        if result.curve.is_helped:
            least, ratio = f"{result.least_slots:.1f}", f"{mean / result.least_slots:.2f}"
            settled = f"{result.settled_lag_s:.1f}"
        yield _FORM.format(
            result.curve.name,
            result.seed,
            len(result.rescales),
            f"{mean:.1f}",
            least,
            ratio,
            f"{result.worst_lag_s:.1f}",
            settled,
            events,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation autoscaler", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args(arguments)
    seeds = range(options.first, options.first + options.seeds)
    results = [result for seed in seeds for result in drive_all(CURVES, seed)]
    for line in lines(results):
        print(line)
    return 0
