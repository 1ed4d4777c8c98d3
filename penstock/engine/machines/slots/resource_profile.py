"""The resources of a slot or of a request.

Knows no slots. Source: Flink ResourceProfile (docs/spec/slots.md#sizes). Numbers are Decimals, so
that 0.1 + 0.2 is 0.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Final

from penstock.engine.model.errors import ConfigurationError

FIELDS: Final = ("cpu", "heap", "offheap", "managed", "network")


class _Special(Enum):
    """UNKNOWN: nothing is specified. ANY: as large as possible."""

    UNKNOWN = "UNKNOWN"
    ANY = "ANY"
    CONCRETE = "CONCRETE"


@dataclass(frozen=True, slots=True)
class ResourceProfile:
    """Cores and MiB by field, extended resources by name. Make it with `profile_of`."""

    amounts: tuple[tuple[str, Decimal], ...] = ()
    extended: tuple[tuple[str, Decimal], ...] = ()
    special: _Special = field(default=_Special.CONCRETE)

    def __str__(self) -> str:
        if self.special is not _Special.CONCRETE:
            return str(self.special.value)
        parts = [f"{name}={amount:f}" for name, amount in (*self.amounts, *self.extended) if amount]
        return ", ".join(parts) or "ZERO"

    def is_matching(self, request: ResourceProfile) -> bool:
        """Whether a slot of this profile may serve the request: they are equal, the slot is ANY, or
        the request is UNKNOWN.

        Raises: ConfigurationError: the slot itself is UNKNOWN.
        """
        if self == UNKNOWN:
            raise ConfigurationError(
                "a slot of UNKNOWN resources cannot be compared with a request; a slot must "
                "have ANY or concrete resources."
            )
        return self.special is _Special.ANY or request in {self, UNKNOWN}

    def has_at_least(self, other: ResourceProfile) -> bool:
        """Whether every amount of `other` is covered."""
        if self.special is _Special.ANY or self == other:
            return True
        if self == UNKNOWN:
            return False
        if other == UNKNOWN:
            return True
        if other == ANY:
            return False
        ours, theirs = self.as_dict(), other.as_dict()
        return all(ours.get(name, Decimal(0)) >= amount for name, amount in theirs.items())

    def merge(self, other: ResourceProfile) -> ResourceProfile:
        """Return the sum. It is ANY if one is ANY, else UNKNOWN if one is UNKNOWN."""
        if absorbed := _absorb(self, other):
            return absorbed
        return _combine(self, other, 1)

    def subtract(self, other: ResourceProfile) -> ResourceProfile:
        """Return the difference. Raises ConfigurationError: `other` is not covered."""
        if absorbed := _absorb(self, other):
            return absorbed
        if not self.has_at_least(other):
            raise ConfigurationError(
                f"cannot subtract resources ({other}) from ({self}): they are not covered."
            )
        return _combine(self, other, -1)

    def multiply(self, times: int) -> ResourceProfile:
        if times < 0:
            raise ConfigurationError(
                f"cannot multiply resources by {times}; the factor must be 0 or more."
            )
        if times == 0:
            return ZERO
        if self.special is not _Special.CONCRETE:
            return self
        scaled = {name: amount * times for name, amount in self.as_dict().items()}
        return profile_of(scaled)

    def as_dict(self) -> dict[str, Decimal]:
        return dict((*self.amounts, *self.extended))

    def amount(self, name: str) -> Decimal:
        return self.as_dict().get(name, Decimal(0))


def profile_of(amounts: Mapping[str, float | Decimal]) -> ResourceProfile:
    """Return a profile from amounts by name; names outside `FIELDS` are extended resources."""
    exact = {name: Decimal(str(amount)) for name, amount in amounts.items()}
    if negative := [name for name, amount in exact.items() if amount < 0]:
        raise ConfigurationError(f"resource '{negative[0]}' is {amounts[negative[0]]}, below 0.")
    extended = {name: exact[name] for name in sorted(exact) if name not in FIELDS and exact[name]}
    return ResourceProfile(
        tuple((name, exact[name].normalize()) for name in FIELDS if exact.get(name)),
        tuple((name, amount.normalize()) for name, amount in extended.items()),
    )


UNKNOWN: Final = ResourceProfile(special=_Special.UNKNOWN)
ANY: Final = ResourceProfile(special=_Special.ANY)
ZERO: Final = ResourceProfile()


def _absorb(one: ResourceProfile, other: ResourceProfile) -> ResourceProfile | None:
    if ANY in {one, other}:
        return ANY
    return UNKNOWN if UNKNOWN in {one, other} else None


def _combine(one: ResourceProfile, other: ResourceProfile, sign: int) -> ResourceProfile:
    ours, theirs = one.as_dict(), other.as_dict()
    names = dict.fromkeys((*ours, *theirs))
    zero = Decimal(0)
    return profile_of({n: ours.get(n, zero) + sign * theirs.get(n, zero) for n in names})
