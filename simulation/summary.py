"""The results of many seeds: the distribution of events, every fault kind's count, every
invariant's evaluations.

Plain sums of `SeedResult`s. `problems` says why a run does not cover enough although no invariant
broke: a fault kind that never fired, an invariant never evaluated on a state that could break it,
seeds that are too small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from simulation.elastic import ElasticName
from simulation.graphs import REGIONS_MIN, TASKS_MIN
from simulation.invariants import Name
from simulation.scenario import TASKMANAGERS_MIN, FaultKind, Moment
from simulation.world import SeedResult

EVENTS_MIN: Final = 300
FAULTS_MEAN_MIN: Final = 4.0
MINUTES: Final = (5, 30)
_TAIL_MINUTES: Final = 5
"""How long the end of a seed may take: idle TaskManagers are stopped, silent ones end."""


@dataclass(slots=True)
class Summary:
    """Sums over seeds. `sizes`: events of each seed."""

    failed: list[SeedResult] = field(default_factory=list)
    seeds: int = 0
    simulated_ms: int = 0
    jobs: int = 0
    restarts: int = 0
    events: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    evaluated: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    rescales: int = 0
    takeovers: int = 0
    elastic: Counter[str] = field(default_factory=Counter)
    sizes: list[int] = field(default_factory=list)
    too_small: list[str] = field(default_factory=list)

    def add(self, result: SeedResult) -> None:
        self.seeds += 1
        self.simulated_ms += result.simulated_ms
        self.jobs += result.jobs
        self.restarts += result.restarts
        self.events += result.events
        self.faults += result.faults
        self.moments += result.moments
        self.messages += result.messages_touched
        self.evaluated += result.evaluated
        self.endings += result.endings
        self.rescales += result.rescales
        self.takeovers += result.takeovers
        self.elastic += result.elastic
        self.sizes.append(result.events.total())
        if result.violation is not None:
            self.failed.append(result)
        else:
            self.too_small.extend(_too_small(result))

    def problems(self) -> list[str]:
        """Return why the run does not cover enough; empty: it does."""
        found = list(self.too_small)
        found += [f"fault '{kind}' never fired" for kind in FaultKind if not self.faults[kind]]
        found += [f"no fault struck {m}" for m in Moment if not self.moments[m]]
        found += [
            f"invariant '{name}' was never evaluated on a state that could break it"
            for name in Name
            if not self.evaluated[name]
        ]
        if self.elastic:
            found += [
                f"'{one}' was never looked at" for one in ElasticName if not self.elastic[one]
            ]
            if not self.takeovers:
                found.append("no driver took a job over")
        if self.faults.total() < FAULTS_MEAN_MIN * self.seeds:
            mean = self.faults.total() / max(1, self.seeds)
            found.append(f"{mean:.1f} faults per seed, expected at least {FAULTS_MEAN_MIN:g}")
        return found

    def lines(self) -> Iterator[str]:
        hours = self.simulated_ms / 3_600_000
        sizes = sorted(self.sizes)
        yield (
            f"{self.seeds} seeds, {hours:.0f} simulated hours, {self.jobs} jobs, "
            f"{self.restarts} restarts, {self.faults.total() / max(1, self.seeds):.1f} faults per seed"
        )
        yield (
            f"events per seed: least {sizes[0]}, median {sizes[len(sizes) // 2]}, most {sizes[-1]}; "
            f"in all {self.events.total()}"
        )
        if self.elastic:
            yield f"{self.rescales} planned rescales, {self.takeovers} jobs taken over"
            yield from _section("invariants of rescaled jobs", self.elastic, ElasticName)
        yield from _section("jobs ended", self.endings)
        yield from _section("events", self.events)
        yield from _section("faults", self.faults, FaultKind)
        yield from _section("messages touched", self.messages)
        yield from _section("faults at named moments", self.moments, Moment)
        yield from _section("invariants, evaluated where they could break", self.evaluated, Name)


def _too_small(result: SeedResult) -> list[str]:
    minutes = result.simulated_ms / 60_000
    events = result.events.total() - result.events["Tick"]
    checks = (
        (result.taskmanagers >= TASKMANAGERS_MIN, f"{result.taskmanagers} TaskManagers"),
        (result.regions >= REGIONS_MIN, f"{result.regions} regions"),
        (result.tasks >= TASKS_MIN, f"{result.tasks} tasks"),
        (events >= EVENTS_MIN, f"{events} events, not counting ticks of the clock"),
        (MINUTES[0] <= minutes <= MINUTES[1] + _TAIL_MINUTES, f"{minutes:.1f} minutes"),
    )
    return [f"seed {result.seed} has only {what}" for is_good, what in checks if not is_good]


def _section(title: str, counts: Counter[str], names: Iterable[str] | None = None) -> Iterator[str]:
    """Yield a section, the most frequent names first; of `names` also those that never occurred."""
    yield f"{title}:"
    shown = Counter({name: counts[name] for name in names}) if names is not None else counts
    for name, count in sorted(shown.items(), key=lambda pair: (-pair[1], pair[0])):
        yield f"  {count:>10}  {name}"
