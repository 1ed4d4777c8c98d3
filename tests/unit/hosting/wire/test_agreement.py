"""Key agreement in the group ffdhe3072 of RFC 7919 (`hosting/wire/agreement.py`)."""

import pytest

from penstock.hosting.wire.agreement import PRIME, PUBLIC_BYTES, KeyPair
from penstock.model.errors import AuthenticationError

BEGIN = "ffffffffffffffffadf85458a2bb4a9aafdc5620273d3cf1"
END = "3c1b20ee3fd59d7c25e41d2b66c62e37ffffffffffffffff"
"""Of the prime in RFC 7919, appendix A.2."""


def is_probably_prime(number: int) -> bool:
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(
        any(pow(base, odd << times, number) == number - 1 for times in range(twos))
        or pow(base, odd, number) == 1
        for base in (2, 3, 5, 7, 11, 13)
    )


def test_the_prime_is_that_of_the_rfc():
    digits = f"{PRIME:x}"
    assert (digits[: len(BEGIN)], digits[-len(END) :]) == (BEGIN, END)
    assert PRIME.bit_length() == 3072
    assert is_probably_prime(PRIME)
    assert is_probably_prime((PRIME - 1) // 2)


def test_both_ends_agree_and_each_pair_of_ends_on_something_else():
    ours, theirs, others = KeyPair(), KeyPair(), KeyPair()
    assert ours.shared_with(theirs.public) == theirs.shared_with(ours.public)
    assert ours.shared_with(others.public) != ours.shared_with(theirs.public)
    assert len(ours.public) == len(ours.shared_with(theirs.public)) == PUBLIC_BYTES


@pytest.mark.parametrize("value", [0, 1, PRIME - 1, PRIME, PRIME + 1])
def test_a_value_outside_the_group_is_refused(value):
    with pytest.raises(AuthenticationError, match="outside the group"):
        KeyPair().shared_with(value.to_bytes(PUBLIC_BYTES, "big"))


def test_a_value_of_another_length_is_refused():
    with pytest.raises(AuthenticationError, match="outside the group"):
        KeyPair().shared_with(b"\2")
