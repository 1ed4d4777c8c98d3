"""What the conformance kit found: records that were lost, doubled or seen too early, and the guarantee that follows.

Does not know sources or sinks.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.connectors.api.base import DeliveryGuarantee
from penstock.engine.model.texts.bounded_text import bounded_repr

_SHOWN: Final = 5
_RANKS: Final = (
    DeliveryGuarantee.NONE,
    DeliveryGuarantee.AT_LEAST_ONCE,
    DeliveryGuarantee.EXACTLY_ONCE,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was wrong in one scenario. `early`: records that were visible before their commit. `error`: '' if none.

    `left`: what nobody needs any more, and `abort` has not removed.
    """

    scenario: str
    lost: tuple[Any, ...] = ()
    doubled: tuple[Any, ...] = ()
    early: tuple[Any, ...] = ()
    error: str = ""
    left: tuple[Any, ...] = ()

    @property
    def guarantee(self) -> DeliveryGuarantee:
        if self.error or self.lost:
            return DeliveryGuarantee.NONE
        if self.doubled or self.early:
            return DeliveryGuarantee.AT_LEAST_ONCE
        return DeliveryGuarantee.EXACTLY_ONCE

    def __str__(self) -> str:
        parts = [
            f"{len(found)} {what} ({', '.join(bounded_repr(one, 100) for one in found[:_SHOWN])})"
            for what, found in (
                ("lost", self.lost),
                ("doubled", self.doubled),
                ("visible too early", self.early),
                ("left over", self.left),
            )
            if found
        ]
        return f"{self.scenario}: {'; '.join([*parts, *([self.error] if self.error else [])])}"


@dataclass(slots=True)
class Conformance:
    """The outcome of `check_source` or `check_sink`.

    `findings`: of the scenarios in which something was wrong. `scenarios`: how many there were. `kind`: the class checked.
    """

    kind: str
    findings: list[Finding] = field(default_factory=list)
    scenarios: int = 0

    @property
    def guarantee(self) -> DeliveryGuarantee:
        """The guarantee that every scenario kept.

        NONE: a record was lost, or an error was raised. AT_LEAST_ONCE: some were doubled, or visible before their commit.
        """
        seen = [found.guarantee for found in self.findings]
        return min(seen, key=_RANKS.index, default=DeliveryGuarantee.EXACTLY_ONCE)

    def require(self, guarantee: DeliveryGuarantee) -> None:
        """Raise AssertionError if less was seen, or something was left over, with all that was wrong."""
        has_left = any(found.left for found in self.findings)
        if has_left or _RANKS.index(self.guarantee) < _RANKS.index(guarantee):
            raise AssertionError(f"expected {guarantee.name} of {self}")

    def __str__(self) -> str:
        head = f"{self.kind}: {self.guarantee.name} in {self.scenarios} scenarios"
        return "\n".join([head, *(f"  {found}" for found in self.findings)])

    def compare(
        self,
        scenario: str,
        expected: Iterable[Any],
        found: Iterable[Any],
        early: tuple[Any, ...] = (),
        left: tuple[Any, ...] = (),
    ) -> None:
        """Note a scenario. Records are compared without their order."""
        self.scenarios += 1
        wanted, there = list(expected), list(found)
        lost, doubled = missing(wanted, there), missing(there, wanted)
        if lost or doubled or early or left:
            found_wrong = Finding(scenario, tuple(lost), tuple(doubled), early, left=left)
            self.findings.append(found_wrong)

    def fail(self, scenario: str, error: str) -> None:
        """Note a scenario that ended with an error."""
        self.scenarios += 1
        self.findings.append(Finding(scenario, error=error))


def missing(records: Iterable[Any], among: Iterable[Any]) -> list[Any]:
    """Those of the records that are not among the others, as often as they are missing."""
    left = Counter(map(_key, among))
    lacking = []
    for record in records:
        key = _key(record)
        if left[key]:
            left[key] -= 1
        else:
            lacking.append(record)
    return lacking


def distinct(records: Iterable[Any]) -> list[Any]:
    """One of equal records, in their order."""
    return list({_key(record): record for record in records}.values())


def _key(record: Any) -> Hashable:
    try:
        hash(record)
    except TypeError:
        return pickle.dumps(record)
    found: Hashable = record
    return found


def spread(last: int, most: int) -> list[int]:
    """Up to `most` numbers from 0 to `last`, both among them. Raises: ValueError: `most` is below 2."""
    if most < 2:
        raise ValueError(f"most_points: expected 2 or more, the first and the last, got {most}")
    if last < most:
        return list(range(last + 1))
    return sorted({round(number * last / (most - 1)) for number in range(most)})
