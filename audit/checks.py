"""Checks of committed output against the log. Each takes rows as they become visible, in any order of the files they are in.

A check raises nothing: it adds to `problems`, each a kind and a sentence with the first rows that are wrong.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from audit.expected import PAIR_MS, SLOT_MS, WINDOW_MS, Log, Sums

MILESTONE: Final = 20
"""Every so many versions of a key go to SQL, too."""
_SHOWN: Final = 3

CHAIN: Final = ("key", "version", "source", "sequence", "total")
SLOTS: Final = ("key", "slot_end", "count", "total")
PAIRS: Final = ("a_source", "a_sequence", "b_source", "b_sequence")
MILESTONES: Final = ("key", "version", "total")


@dataclass(frozen=True, slots=True)
class Problem:
    """`kind`: lost, doubled, gap, fork, order, wrong, strange."""

    check: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.check}: {self.kind}: {self.text}"


class Check(ABC):
    """Rows are a dict of int64 arrays of one length, by the names in `columns`."""

    name: str
    columns: Sequence[str]

    def __init__(self, log: Log) -> None:
        self.log = log
        self.problems: list[Problem] = []
        self.rows = 0

    @abstractmethod
    def add(self, rows: dict[str, np.ndarray]) -> None:
        """More rows are visible."""

    @abstractmethod
    def finish(self) -> None:
        """There are no more."""

    def _bad(self, kind: str, what: str, rows: dict[str, np.ndarray], bad: np.ndarray) -> None:
        """`bad`: a mask. Nothing where no row is."""
        count = int(bad.sum())
        if count:
            first = np.flatnonzero(bad)[:_SHOWN]
            shown = [{name: int(rows[name][i]) for name in self.columns} for i in first]
            self.problems.append(Problem(self.name, kind, f"{count} rows {what}, such as {shown}"))


class _Once:
    """Numbers that may come once. They lie in sorted runs, each more than twice as long as the next."""

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def repeated(self, numbers: np.ndarray) -> np.ndarray:
        """Mask of those that have come before, here or earlier."""
        order = np.argsort(numbers, kind="stable")
        in_order = numbers[order]
        again = np.zeros(len(numbers), bool)
        again[order[1:]] = in_order[1:] == in_order[:-1]
        for run in self._runs:
            place = np.searchsorted(run, numbers)
            inside = place < len(run)
            again[inside] |= run[place[inside]] == numbers[inside]
        self._add(in_order)
        return again

    def _add(self, run: np.ndarray) -> None:
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        if len(run):
            self._runs.append(run)


class ChainCheck(Check):
    """Each record once, and for each key versions 1, 2, 3 ... with running totals, records of one source in their order."""

    name = "chain"
    columns = CHAIN

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._records = _Once()
        self._versions = _Once()
        self._waiting: dict[str, np.ndarray] = {name: np.zeros(0, np.int64) for name in CHAIN}
        self.last_version = np.zeros(0, np.int64)
        self._last_total = np.zeros(0, np.int64)
        self._last_sequence: dict[int, np.ndarray] = {}
        self.milestones: dict[tuple[int, int], int] = {}

    def add(self, rows: dict[str, np.ndarray]) -> None:
        self.rows += len(rows["key"])
        found, is_there = self.log.find(rows["source"], rows["sequence"])
        self._bad("strange", "are not in the log", rows, ~is_there)
        has_key = found["key"] == rows["key"]
        self._bad("wrong", "have another key than in the log", rows, is_there & ~has_key)
        again = self._records.repeated(rows["source"] << 48 | rows["sequence"])
        self._bad("doubled", "are records that came before", rows, again)
        fork = self._versions.repeated(rows["key"] << 40 | rows["version"]) & ~again
        self._bad("fork", "have a version that the key had before", rows, fork)
        good = is_there & has_key & ~again & ~fork
        self._waiting = {
            name: np.concatenate([waiting, rows[name][good]])
            for name, waiting in self._waiting.items()
        }
        self._advance()

    def finish(self) -> None:
        if len(self._waiting["key"]):
            every = np.ones(len(self._waiting["key"]), bool)
            self._bad("gap", "come after a version that is missing", self._waiting, every)
        wanted = self.log.size
        lost = wanted - self.rows
        if lost > 0:
            text = f"{lost} of {wanted} records of the log are missing"
            self.problems.append(Problem(self.name, "lost", text))

    def _advance(self) -> None:
        """Take the versions that follow on what is known of their key."""
        rows = self._waiting
        order = np.lexsort((rows["version"], rows["key"]))
        rows = {name: values[order] for name, values in rows.items()}
        keys = rows["key"]
        if not len(keys):
            return
        self._fit(int(keys.max()) + 1)
        starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
        run = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(keys)]))
        place = np.arange(len(keys)) - starts[run]
        is_due = rows["version"] == self.last_version[keys] + 1 + place
        # Up to the first gap of each key: later ones have another distance for good.
        taken = {name: values[is_due] for name, values in rows.items()}
        self._waiting = {name: values[~is_due] for name, values in rows.items()}
        if len(taken["key"]):
            self._take(taken)

    def _take(self, rows: dict[str, np.ndarray]) -> None:
        """Rows in the order of key and version, without gaps."""
        keys = rows["key"]
        values = self.log.find(rows["source"], rows["sequence"])[0]["value"].astype(np.int64)
        starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
        lengths = np.diff(np.r_[starts, len(keys)])
        sums = np.cumsum(values)
        before = np.repeat(sums[starts] - values[starts], lengths)
        totals = sums - before + self._last_total[keys]
        self._bad("wrong", "have another running total", rows, totals != rows["total"])
        self._check_order(rows)
        ends = starts + lengths - 1
        self.last_version[keys[ends]] = rows["version"][ends]
        # As it was written, so that one error is told once.
        self._last_total[keys[ends]] = rows["total"][ends]
        stones = rows["version"] % MILESTONE == 0
        self.milestones.update(
            zip(
                zip(keys[stones].tolist(), rows["version"][stones].tolist(), strict=True),
                rows["total"][stones].tolist(),
                strict=True,
            )
        )

    def _check_order(self, rows: dict[str, np.ndarray]) -> None:
        for source in np.unique(rows["source"]).tolist():
            mine = np.flatnonzero(rows["source"] == source)
            keys, sequences = rows["key"][mine], rows["sequence"][mine]
            last = self._last_sequence.get(source, np.zeros(0, np.int64))
            if len(last) < len(self.last_version):
                last = np.r_[last, np.full(len(self.last_version) - len(last), -1)]
            is_first = np.r_[True, keys[1:] != keys[:-1]]
            before = np.where(is_first, last[keys], np.r_[0, sequences[:-1]])
            bad = np.zeros(len(rows["key"]), bool)
            bad[mine] = sequences <= before
            self._bad("order", f"of source {source} come after a later one of their key", rows, bad)
            ends = np.flatnonzero(np.r_[is_first[1:], True])
            last[keys[ends]] = sequences[ends]
            self._last_sequence[source] = last

    def _fit(self, keys: int) -> None:
        missing = keys - len(self.last_version)
        if missing > 0:
            self.last_version = np.r_[self.last_version, np.zeros(missing, np.int64)]
            self._last_total = np.r_[self._last_total, np.zeros(missing, np.int64)]


class SlotCheck(Check):
    """Count and sum of each key's a records in each slot of time, once, as the log has them."""

    columns = SLOTS

    def __init__(self, log: Log, name: str, sums: Sums) -> None:
        super().__init__(log)
        self.name = name
        self._sums = sums
        self._once = _Once()

    def add(self, rows: dict[str, np.ndarray]) -> None:
        self.rows += len(rows["key"])
        slots = rows["slot_end"] // self._sums.slot_ms - 1
        is_slot = rows["slot_end"] % self._sums.slot_ms == 0
        self._bad("strange", "are no slots", rows, ~is_slot)
        again = self._once.repeated(rows["key"] << 40 | rows["slot_end"])
        self._bad("doubled", "were there before", rows, again)
        counts, totals = self._sums.at(rows["key"], slots)
        right = (counts == rows["count"]) & (totals == rows["total"]) & (counts > 0)
        self._bad("wrong", "are not what the log has", rows, is_slot & ~again & ~right)

    def finish(self) -> None:
        wanted = int((self._sums.counts > 0).sum())
        if wanted > self.rows:
            text = f"{wanted - self.rows} of {wanted} keys and slots are missing"
            self.problems.append(Problem(self.name, "lost", text))


class PairCheck(Check):
    """Each pair of records of a and b with one key and near times, once."""

    name = "pairs"
    columns = PAIRS

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._once = _Once()

    def add(self, rows: dict[str, np.ndarray]) -> None:
        self.rows += len(rows["a_source"])
        a, has_a = self.log.find(rows["a_source"], rows["a_sequence"])
        b, has_b = self.log.find(rows["b_source"], rows["b_sequence"])
        self._bad("strange", "are not in the log", rows, ~(has_a & has_b))
        is_near = np.abs(a["event_ms"] - b["event_ms"]) <= PAIR_MS
        is_pair = (a["key"] == b["key"]) & is_near
        self._bad("wrong", "are no pair", rows, has_a & has_b & ~is_pair)
        number = rows["a_source"] << 57 | rows["a_sequence"] << 32
        number |= (rows["b_source"] - 100) << 28 | rows["b_sequence"]
        self._bad("doubled", "were there before", rows, self._once.repeated(number))

    def finish(self) -> None:
        wanted = self.log.pairs()
        if wanted > self.rows:
            text = f"{wanted - self.rows} of {wanted} pairs are missing"
            self.problems.append(Problem(self.name, "lost", text))


class MilestoneCheck(Check):
    """What SQL has of the chain is what the files have: both sinks went back to the same checkpoint."""

    name = "milestones"
    columns = MILESTONES

    def __init__(self, log: Log, chain: ChainCheck) -> None:
        super().__init__(log)
        self._chain = chain
        self._once = _Once()
        self._waiting: dict[tuple[int, int], int] = {}

    def add(self, rows: dict[str, np.ndarray]) -> None:
        self.rows += len(rows["key"])
        again = self._once.repeated(rows["key"] << 40 | rows["version"])
        self._bad("doubled", "were there before", rows, again)
        self._bad("strange", "are none", rows, rows["version"] % MILESTONE != 0)
        pairs = zip(rows["key"].tolist(), rows["version"].tolist(), strict=True)
        self._waiting.update(zip(pairs, rows["total"].tolist(), strict=True))
        self.compare()

    def compare(self) -> None:
        """Those that the chain has come to."""
        known = self._chain.milestones
        both = [place for place in self._waiting if place in known]
        wrong = [place for place in both if self._waiting[place] != known[place]]
        for place in both:
            del self._waiting[place]
        if wrong:
            text = f"{len(wrong)} totals differ from the chain's, such as {wrong[:_SHOWN]}"
            self.problems.append(Problem(self.name, "fork", text))

    def finish(self) -> None:
        self.compare()
        if self._waiting:
            text = (
                f"{len(self._waiting)} are not in the chain, such as {list(self._waiting)[:_SHOWN]}"
            )
            self.problems.append(Problem(self.name, "strange", text))
        wanted = len(self._chain.milestones)
        if wanted > self.rows:
            text = f"{wanted - self.rows} of {wanted} are missing"
            self.problems.append(Problem(self.name, "lost", text))


def all_checks(log: Log) -> dict[str, Check]:
    """By the name of the output that each looks at."""
    chain = ChainCheck(log)
    return {
        "chain": chain,
        "timers": SlotCheck(log, "timers", log.sums(SLOT_MS)),
        "windows": SlotCheck(log, "windows", log.sums(WINDOW_MS)),
        "pairs": PairCheck(log),
        "milestones": MilestoneCheck(log, chain),
    }
