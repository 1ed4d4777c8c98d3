"""What one program gave on both engines, and in what it differs. Runs nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from differential.generator import Program


@dataclass(frozen=True)
class Difference:
    """Lines that only one of both has. Each is `output name, timestamp, value`; both empty: none differs."""

    program: Program
    only_flink: tuple[str, ...]
    only_ours: tuple[str, ...]

    @property
    def is_any(self) -> bool:
        return bool(self.only_flink or self.only_ours)

    def text(self) -> str:
        """The program and the lines, for people."""
        mode = "BATCH" if self.program.is_batch else "STREAMING"
        if self.program.is_batch and not self.program.is_batch_on_flink:
            mode += " (PyFlink: STREAMING)"
        chains = "chained" if self.program.has_chains else "not chained"
        lines = [f"---- seed {self.program.seed}, {mode}, {chains}", self.program.text]
        lines += [f"    only PyFlink:  {line}" for line in self.only_flink]
        lines += [f"    only Penstock: {line}" for line in self.only_ours]
        return "\n".join(lines)


def difference(program: Program, flink: Sequence[str], ours: Sequence[str]) -> Difference:
    """Compare the lines of both; their order does not count, their number does."""
    theirs, own = Counter(flink), Counter(ours)
    only_theirs, only_own = sorted((theirs - own).elements()), sorted((own - theirs).elements())
    return Difference(program, tuple(only_theirs), tuple(only_own))
