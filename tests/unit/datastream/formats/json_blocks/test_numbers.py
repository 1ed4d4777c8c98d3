"""Numbers read from many spans of text at once are those that Python reads from each, or nothing is read."""

import json
import math
import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.datastream.formats.json_blocks.numbers import PaddedText, doubles, integers

INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
SURE = 921 * 10**16
"""Below, all integers of 19 digits are read."""


def spans(texts, between=","):
    """The texts in one, each between signs that are no part of it."""
    text = PaddedText(between.join(["", *texts, ""]).encode())
    sizes = np.array([len(one.encode()) for one in texts])
    ends = text.first + np.cumsum(sizes + len(between))
    return text, ends - sizes, ends


def same(found, expected):
    """Equal, zeros with their signs."""
    signs = [math.copysign(1, one) for one in expected]
    return found.tolist() == expected and [math.copysign(1, one) for one in found] == signs


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-99999, 99999), min_size=1),
    st.sampled_from([",", "9", "-9", ".5", '"']),
)
def test_integers_are_read_wherever_they_stand(values, between):
    found = integers(*spans([str(one) for one in values], between))
    if found is None:
        assert max(map(abs, values)) >= SURE
    else:
        assert found.dtype == np.int64
        assert found.tolist() == values


@pytest.mark.parametrize("digits", range(1, 20))
def test_each_number_of_digits_is_read(digits):
    least = 10 ** (digits - 1)
    values = [least, -least, 2 * least - 1, min(10**digits - 1, SURE - 1)]
    assert integers(*spans([str(one) for one in values])).tolist() == values


@pytest.mark.parametrize(
    "text",
    ["", "-", "01", "-01", "00", "+1", " 1", "1 ", "1.0", "1e3", "--1", "0x1", "1_0", "/", ":",
     "1-", "null", "1/000000", "12345678:", "\xb2", "9220000000000000000", "1" * 20],
)  # fmt: skip
def test_what_is_no_sure_integer_is_not_read(text):
    assert integers(*spans(["7", text, "8"])) is None


@given(
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False)
        | st.decimals(-9999, 9999, places=3).map(float)
        | st.integers(1, 2**60)
        | st.integers(-(2**60), -1),
        min_size=1,
    ),
)
def test_doubles_are_the_nearest(values):
    texts = [json.dumps(one) for one in values]
    found = doubles(*spans(texts))
    if found is not None:
        assert same(found, [float(one) for one in texts])


@given(st.integers(0, 10**15 - 1), st.integers(1, 14), st.sampled_from(["", "-"]))
@example(900719925474099, 1, "")
@example(0, 14, "-")
def test_short_decimals_are_always_read(digits, decimals, sign):
    padded = str(digits).rjust(decimals + 1, "0")
    text = f"{sign}{padded[:-decimals]}.{padded[-decimals:]}"
    found = doubles(*spans([text, "1.5"]))
    assert same(found, [float(text), 1.5])


def test_some_long_numbers_are_read_among_many_short_ones():
    texts = ["0.1"] * 30 + ["0.30000000000000004", "-1.7976931348623157e+308", "5e-324"]
    assert same(doubles(*spans(texts)), list(map(float, texts)))


def test_many_long_numbers_are_left_to_a_parser():
    assert doubles(*spans(["0.30000000000000004"] * 4)) is None


def test_a_negative_zero_without_a_dot_is_left_to_a_parser():
    """Python reads an integer, whose zero has no sign."""
    assert doubles(*spans(["1.5", "-0"])) is None


@given(st.text("0123456789.-+eE :/n", max_size=20))
def test_any_text_is_read_as_python_reads_it_or_not_at_all(text):
    padding = ["1.5"] * 20
    whole, decimal = integers(*spans(["15", text])), doubles(*spans([*padding, text]))
    if whole is not None:
        assert INTEGER.fullmatch(text)
        assert whole.tolist() == [15, int(text)]
    if decimal is not None:
        assert NUMBER.fullmatch(text)
        assert same(decimal[-1:], [float(text)])
    if INTEGER.fullmatch(text) and len(text) <= 18:
        assert whole is not None


def test_words_and_constants_are_found_at_all_their_places_or_not():
    text, starts, ends = spans(["true", "tru", "truer", "null"])
    assert text.are(b"true", starts, ends).tolist() == [True, False, False, False]
    text, starts, _ = spans(["a constant of 23 bytes.", "a constant of 23 bytes."])
    for size in range(1, 24):
        assert text.has(b"a constant of 23 bytes."[:size], starts)
        assert not text.has(b"a constant of 23 bytes."[: size - 1] + b"!", starts)
