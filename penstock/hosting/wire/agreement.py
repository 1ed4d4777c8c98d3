"""Key agreement: two ends that exchange public values get a common secret, and a listener does not.

Diffie-Hellman in the group ffdhe3072 of RFC 7919. Python's `pow` is all that it needs, so it works on
executors that have the standard library only. One agreement takes a few milliseconds.
"""

from __future__ import annotations

import secrets
from typing import Final

from penstock.model.errors import AuthenticationError

_BITS: Final = 3072
PUBLIC_BYTES: Final = _BITS // 8
_EXPONENT_BITS: Final = 320
"""RFC 7919 asks for at least 275."""
_GENERATOR: Final = 2


def _e_times_two_to(bits: int) -> int:
    """Return floor(e * 2**bits), by the series of e."""
    guard = 64
    term = total = 1 << (bits + guard)
    divisor = 1
    while term:
        term //= divisor
        total += term
        divisor += 1
    return total >> guard


PRIME: Final = (
    (1 << _BITS)
    - (1 << (_BITS - 64))
    + ((_e_times_two_to(_BITS - 130) + 2625351) << 64)
    - 1
)  # fmt: skip
"""The formula of RFC 7919, appendix A. (PRIME - 1) / 2 is a prime too."""


class KeyPair:
    """A private exponent and its public value. Safe for any thread."""

    def __init__(self, exponent: int | None = None) -> None:
        """`exponent`: None draws one from the system's source of secrets."""
        self._exponent = exponent or secrets.randbits(_EXPONENT_BITS) | 1 << (_EXPONENT_BITS - 1)
        self.public = _to_bytes(pow(_GENERATOR, self._exponent, PRIME))

    def shared_with(self, public: bytes) -> bytes:
        """Return what both ends know now: `PUBLIC_BYTES` bytes, to derive keys from.

        Raises AuthenticationError: `public` is no public value. It could give away bits of the exponent.
        """
        value = int.from_bytes(public, "big")
        if len(public) != PUBLIC_BYTES or not 1 < value < PRIME - 1:
            raise AuthenticationError("a peer sent a public value that is outside the group")
        return _to_bytes(pow(value, self._exponent, PRIME))


def _to_bytes(value: int) -> bytes:
    return value.to_bytes(PUBLIC_BYTES, "big")
