"""Runs seeds on two processes, or replays one, and reports the results. `python -m simulation
--help`.

The only part of the simulator that uses processes, and a real clock: it reports the elapsed time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from functools import partial
from typing import Final

from simulation.summary import Summary
from simulation.world import SeedResult, run_seed

PROCESSES: Final = 2
_CHUNK: Final = 10
_TWICE_EVERY: Final = 100
"""One seed of so many is run twice, and its two traces must be equal."""


class NotRepeatable(AssertionError):
    """One seed gave two different traces."""


def run_checked(seed: int, *, is_elastic: bool = False) -> SeedResult:
    """Run one seed; some seeds are run twice. `is_elastic`: its jobs are rescaled."""
    if seed % _TWICE_EVERY:
        return run_seed(seed, is_elastic=is_elastic)
    first, second = (run_seed(seed, is_traced=True, is_elastic=is_elastic) for _ in range(2))
    if first.trace != second.trace:
        raise NotRepeatable(f"seed {seed} gave two different traces")
    first.trace = None
    return first


def run_seeds(
    seeds: Sequence[int], processes: int = PROCESSES, *, is_elastic: bool = False
) -> Generator[SeedResult]:
    """Yield results in the order of the seeds."""
    run = partial(run_checked, is_elastic=is_elastic)
    if processes <= 1:
        yield from map(run, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes) as pool:
        yield from pool.imap(run, seeds, chunksize=_CHUNK)


def summarize(results: Iterable[SeedResult]) -> Summary:
    summary = Summary()
    for result in results:
        summary.add(result)
    return summary


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 if all is well, 1 if an invariant broke, 2 if the run does not cover enough."""
    options = _options(arguments)
    if options.seed is not None:
        return _replay(options)
    started_s = time.monotonic()
    seeds = range(options.first, options.first + options.seeds)
    with closing(run_seeds(seeds, options.processes, is_elastic=options.elastic)) as results:
        summary = summarize(results)
    for line in summary.lines():
        print(line)
    print(f"{time.monotonic() - started_s:.0f} s on {options.processes} processes")
    for result in summary.failed:
        assert result.violation is not None
        print(
            f"seed {result.seed} FAILED: {result.violation[1]}\n"
            f"  replay: {_command(result.seed, is_elastic=options.elastic)}"
        )
    problems = summary.problems()
    for problem in problems:
        print(f"not good enough: {problem}")
    if summary.failed:
        return 1
    return 2 if problems else 0


def _replay(options: argparse.Namespace) -> int:
    seed = options.seed
    result = run_seed(seed, is_traced=options.trace, is_elastic=options.elastic)
    for line in result.trace or ():
        print(line)
    if result.violation is None:
        print(f"seed {seed}: every invariant held, {result.events.total()} events")
        return 0
    print(f"seed {seed} FAILED: {result.violation[1]}")
    return 1


def _command(seed: int, *, is_elastic: bool) -> str:
    elastic = " --elastic" if is_elastic else ""
    return f"{sys.executable} -m simulation --seed {seed} --trace{elastic}"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--seed", type=int, help="replay this seed only")
    parser.add_argument(
        "--elastic", action="store_true", help="jobs are rescaled, and their drivers die meanwhile"
    )
    parser.add_argument(
        "--trace", action="store_true", help="print all events of the replayed seed"
    )
    return parser.parse_args(arguments)
