"""What a run has shown: its faults by kind and by minute, and the verdict. A run of too few faults shows nothing.

Knows no processes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, Self

FAULTS_MIN: Final = 4
PER_MINUTE_MIN: Final = 2.0
KINDS_MIN: Final = 3


@dataclass(frozen=True, slots=True)
class Minimum:
    """Below any of these a run is inconclusive. `per_minute`: of the time in which faults were dealt."""

    faults: int = FAULTS_MIN
    per_minute: float = PER_MINUTE_MIN
    kinds: int = KINDS_MIN

    @classmethod
    def usual(cls, seconds: float, kinds: Collection[str]) -> Self:
        """Of a run of so many seconds that deals faults of these kinds.

        A long run has to show more kinds: half as many as it needs faults. It never has to show more than it is dealt, so a
        run of one kind on purpose is held to one, and a run without faults to none.
        """
        if not kinds:
            return cls(0, 0.0, 0)
        needed = max(FAULTS_MIN, math.ceil(PER_MINUTE_MIN * seconds / 60))
        return cls(FAULTS_MIN, PER_MINUTE_MIN, min(len(set(kinds)), max(KINDS_MIN, needed // 2)))

    def __str__(self) -> str:
        return f"{self.faults} faults, {self.per_minute:.1f} a minute, {self.kinds} kinds"


@dataclass(slots=True)
class Report:
    """What happened. `output_again_s`: of each fault, seconds until there was output again. `audited`: the auditor's
    last word. `seconds`: from the first process to the last. `dealt_s`: of them, how long faults were dealt.
    """

    faults: list[dict[str, Any]] = field(default_factory=list)
    audited: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    dealt_s: float = 0.0
    minimum: Minimum = field(default_factory=Minimum)

    @property
    def per_minute(self) -> float:
        return 60.0 * len(self.faults) / self.dealt_s if self.dealt_s else 0.0

    @property
    def kinds(self) -> dict[str, int]:
        """How many of each."""
        return dict(sorted(Counter(fault["kind"] for fault in self.faults).items()))

    @property
    def missing(self) -> list[str]:
        """What the run has too little of to say anything; nothing: it is conclusive."""
        least = self.minimum
        found = []
        if len(self.faults) < least.faults:
            found.append(f"{len(self.faults)} faults, and at least {least.faults} are needed")
        if self.per_minute < least.per_minute:
            rate = f"{self.per_minute:.1f} faults a minute"
            found.append(f"{rate}, and at least {least.per_minute:.1f} are needed")
        if len(self.kinds) < least.kinds:
            found.append(
                f"{len(self.kinds)} kinds of faults, and at least {least.kinds} are needed"
            )
        return found

    def text(self) -> str:
        """A line for each kind of fault, and the verdict."""
        lines = []
        for kind, count in self.kinds.items():
            waits = sorted(f["output_again_s"] for f in self.faults if f["kind"] == kind)
            middle = waits[len(waits) // 2]
            lines.append(
                f"  {count} {kind}: output again after {middle:.1f} s, at most {waits[-1]:.1f} s"
            )
        return "\n".join([f"{len(self.faults)} faults:", *lines, self._verdict()])

    def _verdict(self) -> str:
        rows = self.audited["rows"]
        counted = ", ".join(f"{count:,} {name}" for name, count in rows.items() if name != "chain")
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.items()) or "none"
        faults = f"{len(self.faults)} faults, {self.per_minute:.1f} a minute"
        found = (
            f"{self.audited['log']:,} records in {self.seconds:.0f} s: none lost, none doubled, "
            f"the chain of every key whole; checked too: {counted}\n"
            f"  under {faults}, of {len(self.kinds)} kinds: {kinds}\n"
            f"  the least that counts: {self.minimum}"
        )
        if not self.missing:
            return f"AUDIT PASSED: {found}"
        return (
            f"AUDIT INCONCLUSIVE: {'; '.join(self.missing)}.\n"
            "  Nothing wrong was found, but the run was disturbed too little to show anything. "
            "Let it run longer (--seconds), deal faults more often (--every), deal more kinds "
            "(--faults), or use a machine with less load. A run that is meant to have fewer "
            "says so: --least-faults, --least-per-minute, --least-kinds.\n"
            f"  {found}"
        )
