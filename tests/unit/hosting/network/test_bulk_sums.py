"""Sums that stand for a long payload: the same however it is cut, and others after any damage."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.hosting.network.bulk_sums import COLUMNS, BulkSums
from tests.tools.sealed import damaged

PAYLOAD = np.random.default_rng(5).integers(0, 256, 100_003, np.uint8).tobytes()


def sums_of(*parts: bytes) -> bytes:
    sums = BulkSums()
    for part in parts:
        sums.add(memoryview(part))
    return sums.result()


def by_the_definition(payload: bytes) -> bytes:
    """Words of 8 bytes, little-endian, the last one ended with zeros, dealt to columns in turn."""
    sums = [0] * COLUMNS
    for at in range(0, len(payload), 8):
        word = int.from_bytes(payload[at : at + 8], "little")
        sums[at // 8 % COLUMNS] = (sums[at // 8 % COLUMNS] + word) % 2**64
    return b"".join(one.to_bytes(8, "little") for one in sums)


def test_they_are_what_the_definition_says():
    assert sums_of(PAYLOAD) == by_the_definition(PAYLOAD)
    assert sums_of() == by_the_definition(b"") == bytes(8 * COLUMNS)


@given(st.lists(st.integers(0, len(PAYLOAD)), max_size=12))
@example([1, 2, 3, 5000, 5001, 5009])
def test_they_do_not_depend_on_how_it_is_cut(cuts):
    at = [0, *sorted(cuts), len(PAYLOAD)]
    parts = [PAYLOAD[begin:end] for begin, end in zip(at, at[1:], strict=False)]
    assert sums_of(*parts) == sums_of(PAYLOAD)


@settings(max_examples=300)
@given(
    st.sampled_from(["flip", "drop", "repeat"]),
    st.integers(0, len(PAYLOAD) - 1),
    st.integers(1, 20_000),
)
def test_bytes_that_are_flipped_dropped_or_repeated_are_seen(kind, at, size):
    """A payload has its length in the header: what is missing is made up by what follows."""
    wrong = damaged(PAYLOAD, kind, at, size)[: len(PAYLOAD)].ljust(len(PAYLOAD), b"\xa5")
    assert wrong == PAYLOAD or sums_of(wrong) != sums_of(PAYLOAD)


@given(st.integers(0, 12), st.integers(0, 12))
def test_blocks_that_are_exchanged_are_seen(one, other):
    blocks = [PAYLOAD[at : at + 8192] for at in range(0, 13 * 8192, 8192)]
    blocks[one], blocks[other] = blocks[other], blocks[one]
    is_same = blocks[one] == blocks[other]
    assert is_same or sums_of(b"".join(blocks)) != sums_of(PAYLOAD)
