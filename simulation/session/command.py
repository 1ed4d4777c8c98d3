"""`python -m simulation session`: runs seeds of sessions on two processes, or replays one, and reports the results."""

from __future__ import annotations

import argparse
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from simulation.session.expectations import SessionName
from simulation.session.world import SessionResult, run_session_seed

_PROCESSES: Final = 2
_CHUNK: Final = 5


@dataclass(slots=True)
class SessionSummary:
    """Sums over seeds. `failed`: seeds of which an invariant broke."""

    seeds: int = 0
    simulated_ms: int = 0
    failed: list[SessionResult] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    evaluated: Counter[str] = field(default_factory=Counter)

    def add(self, result: SessionResult) -> None:
        self.seeds += 1
        self.simulated_ms += result.simulated_ms
        self.counts += Counter({
            "jobs": result.jobs,
            "runs of jobs": result.runs,
            "drivers": result.drivers,
            "restarts": result.restarts,
            "planned rescales": result.rescales,
            "TaskManagers beside those of another job": result.workers_shared,
        })
        self.endings += result.endings
        self.faults += result.faults
        self.evaluated += result.evaluated
        if result.violation is not None:
            self.failed.append(result)

    def problems(self) -> list[str]:
        """Return why the seeds do not say enough; empty: they do."""
        names = [str(name) for name in SessionName if not self.evaluated[str(name)]]
        return [f"'{name}' was never looked at" for name in names]

    def lines(self) -> Iterator[str]:
        yield f"{self.seeds} seeds, {self.simulated_ms / 3_600_000:.0f} simulated hours"
        sections = {
            "in all": self.counts,
            "jobs ended": self.endings,
            "faults": self.faults,
            "invariants, evaluated": self.evaluated,
        }
        for title, counts in sections.items():
            yield f"{title}:"
            for name, count in counts.most_common():
                yield f"  {count:>10}  {name}"


def summarize(results: Iterable[SessionResult]) -> SessionSummary:
    """Sum up."""
    summary = SessionSummary()
    for result in results:
        summary.add(result)
    return summary


def main(arguments: Sequence[str]) -> int:
    """Return the exit code: 0 if all is well, 1 if an invariant broke, 2 if the run does not cover enough."""
    parser = argparse.ArgumentParser(prog="python -m simulation session", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="replay this seed only, with all its events")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        result = run_session_seed(options.seed, is_traced=True)
        print(*(result.trace or ()), sep="\n")
        print(f"seed {options.seed}: {result.violation or 'every invariant held'}")
        return int(result.violation is not None)
    seeds = range(options.first, options.first + options.seeds)
    with multiprocessing.get_context("spawn").Pool(_PROCESSES) as pool:
        summary = summarize(pool.imap(run_session_seed, seeds, chunksize=_CHUNK))
    print(*summary.lines(), sep="\n")
    for result in summary.failed:
        print(f"seed {result.seed} FAILED: {result.violation}")
        print(f"  replay: python -m simulation session --seed {result.seed}")
    for problem in summary.problems():
        print(f"not good enough: {problem}")
    return 1 if summary.failed else 2 if summary.problems() else 0
