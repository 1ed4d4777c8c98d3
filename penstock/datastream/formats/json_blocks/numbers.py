"""Numbers in text: many of them at once, by arithmetic on words of eight bytes. Does not know any format.

Reads what JSON calls a number. Where a span of bytes is something else, or its value is not certain, there is no result, and the caller
reads the text in another way. Source: SIMD within a register (Lemire, "Number parsing at a gigabyte per second"); Clinger's fast path.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Places: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]
Numbers: TypeAlias = npt.NDArray[Any]

_ROOM: Final = 24
"""Bytes before and behind the text, so that each word around a span can be read."""
_MINUS, _DOT, _ZERO, _NINE = b"-.09"
_W: Final = np.uint64
_ZEROS: Final = _W(0x3030303030303030)
_DOTS: Final = _W(0x2E2E2E2E2E2E2E2E)
_LOWS: Final = _W(0x0101010101010101)
_HIGHS: Final = _W(0x8080808080808080)
_MOST_DIGITS: Final = 19
_MOST_TOP_DIGITS: Final = 921
"""Of 19 digits, the first three: more may not fit into 64 bits."""
_EXACT: Final = 1 << 53
_DOUBLE_LENGTH: Final = 16
_RARE: Final = 8
"""At most one number of so many may need Python's `float`."""
_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_POWERS: Final = np.array([float(f"1e{power}") for power in range(_DOUBLE_LENGTH + 1)])


class PaddedText:
    """Text whose words can be read at each place. Places count from the beginning of `signs`."""

    def __init__(self, text: bytes) -> None:
        self.first = _ROOM
        self.bytes = b"".join((b"0" * _ROOM, text, bytes(_ROOM)))
        self.signs = np.frombuffer(self.bytes, np.uint8)
        self.words: Words = np.ndarray((len(self.bytes) - 7,), "<u8", self.bytes, strides=(1,))

    @property
    def text(self) -> npt.NDArray[np.uint8]:
        return self.signs[_ROOM:-_ROOM]

    def has(self, constant: bytes, starts: Places) -> bool:
        """Whether these bytes stand at all these places."""
        size = len(constant)
        if size < 8:
            mask = _W((1 << 8 * size) - 1)
            return bool(((self.words[starts] & mask) == _word_of(constant)).all())
        for at in (*range(0, size - 7, 8), size - 8):
            if not (self.words[starts + at] == _word_of(constant[at : at + 8])).all():
                return False
        return True

    def are(self, word: bytes, starts: Places, ends: Places) -> npt.NDArray[np.bool_]:
        """Which spans are this word of at most 8 bytes."""
        mask = _W((1 << 8 * len(word)) - 1)
        is_word = (self.words[starts] & mask) == _word_of(word)
        same: npt.NDArray[np.bool_] = is_word & (ends - starts == len(word))
        return same


def _word_of(constant: bytes) -> np.uint64:
    return _W(int.from_bytes(constant, "little"))


def integers(text: PaddedText, starts: Places, ends: Places) -> Numbers | None:
    """The integers in spans of text, int64. None: a span is no integer, or may not fit."""
    unsigned = _unsigned(text, starts, ends)
    if unsigned is None:
        return None
    is_negative, starts, lengths = unsigned
    longest = int(lengths.max())
    if longest > _MOST_DIGITS or ((text.signs[starts] == _ZERO) & (lengths > 1)).any():
        return None
    values, odd = _eight_digits(_padded(text.words[ends - 8], lengths))
    for done in (8, 16):
        if longest > done:
            part, further = _eight_digits(_padded(text.words[ends - done - 8], lengths - done))
            if done == 16 and int(part.max()) > _MOST_TOP_DIGITS:
                return None
            values += part * _W(10**done)
            odd |= further
    if odd.any():
        return None
    return _signed(values.view(np.int64), is_negative)


def doubles(text: PaddedText, starts: Places, ends: Places) -> Numbers | None:
    """The numbers in spans of text, float64, each the nearest to what is written.

    None: a span is no number, is a negative zero without a dot, or many are so long that arithmetic is not exact.
    """
    unsigned = _unsigned(text, starts, ends)
    if unsigned is None:
        return None
    is_negative, digits, lengths = unsigned
    first = text.signs[digits]
    if (is_negative & (lengths == 1) & (first == _ZERO)).any():
        return None
    is_number = _is_digit(first) & _is_digit(text.signs[ends - 1])
    is_number &= (first != _ZERO) | (lengths == 1) | (text.signs[digits + 1] == _DOT)
    values, is_certain = _decimals(text, ends, lengths)
    found = _signed(values, is_negative)
    others = np.flatnonzero(~(is_certain & is_number))
    if len(others) * _RARE > len(found):
        return None
    for place in others.tolist():
        written = text.bytes[starts[place] : ends[place]]
        if _NUMBER.fullmatch(written) is None:
            return None
        found[place] = float(written)
    return found if np.isfinite(found).all() else None


def _decimals(
    text: PaddedText, ends: Places, lengths: Places
) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """The values of digits with at most one dot, and which of them are certain."""
    low, high, decimals = _without_dot(
        _padded(text.words[ends - 8], lengths), _padded(text.words[ends - 16], lengths - 8)
    )
    low_value, odd = _eight_digits(low)
    high_value, further = _eight_digits(high)
    values = high_value * _W(10**8) + low_value
    is_certain = ((odd | further) == 0) & (lengths <= _DOUBLE_LENGTH) & (values < _EXACT)
    # Both are exact, so the quotient is the nearest double.
    return values.astype(np.float64) / _POWERS[decimals], is_certain


def _unsigned(
    text: PaddedText, starts: Places, ends: Places
) -> tuple[npt.NDArray[np.bool_], Places, Places] | None:
    """Which spans begin with a minus, where their digits begin, and how long they are; None: there are no digits."""
    is_negative = text.signs[starts] == _MINUS
    digits = starts + is_negative
    lengths = ends - digits
    return None if int(lengths.min()) < 1 else (is_negative, digits, lengths)


def _signed(values: Numbers, is_negative: npt.NDArray[np.bool_]) -> Numbers:
    return np.where(is_negative, -values, values) if is_negative.any() else values


def _is_digit(signs: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (signs >= _ZERO) & (signs <= _NINE)
    return found


def _padded(words: Words, lengths: Places) -> Words:
    """Words that end with spans of so many bytes: what is before a span becomes zeros. Lengths may be below 0 and above 8."""
    shift = (8 - np.clip(lengths, 0, 8)).astype(_W) << _W(3)
    # A shift by 64 gives 0 in numpy.
    padded: Words = (words >> shift << shift) | (_ZEROS & ((_W(1) << shift) - _W(1)))
    return padded


def _eight_digits(words: Words) -> tuple[Words, Words]:
    """The value of each word of eight digits; and a word that is not 0 where there is another sign."""
    digits = words - _ZEROS
    odd = ((words + _W(0x4646464646464646)) | digits) & _HIGHS
    pairs = digits * _W(10) + (digits >> _W(8))
    mask = _W(0x000000FF000000FF)
    outer = (pairs & mask) * _W(100 + (1_000_000 << 32))
    inner = ((pairs >> _W(16)) & mask) * _W(1 + (10_000 << 32))
    return (outer + inner) >> _W(32), odd


def _without_dot(low: Words, high: Words) -> tuple[Words, Words, Places]:
    """Both words without the first dot in each; how many digits are behind the dot. `high`: the eight signs before those of `low`.

    Where there is a further dot, it stays, and is no digit.
    """
    in_low, in_high = _first_dot(low), _first_dot(high)
    bits = np.where(in_low != 0, in_low, in_high)
    if not bits.any():
        return low, high, np.zeros(len(low), np.int64)
    # A power of two: the exponent tells its place. The dot of a word is at 8 * index + 7.
    index = (np.frexp(bits.astype(np.float64))[1] - 8) >> 3
    decimals = np.where(bits == 0, 0, np.where(in_low != 0, 7, 15) - index)
    moved_low = _closed(low, in_low) | (high >> _W(56))
    moved_high = (high << _W(8)) | _W(_ZERO)
    is_low, is_high = in_low != 0, (in_low == 0) & (in_high != 0)
    low = np.where(is_low, moved_low, low)
    high = np.where(is_low, moved_high, np.where(is_high, _closed(high, in_high) | _ZERO, high))
    return low, high, decimals


def _first_dot(words: Words) -> Words:
    """The highest bit of the first byte that is a dot; 0: there is none."""
    others = words ^ _DOTS
    found = (others - _LOWS) & ~others & _HIGHS
    return found & (~found + _W(1))


def _closed(words: Words, dots: Words) -> Words:
    """The signs before the dot, moved to its place, and those behind it. The lowest byte is empty."""
    before = (dots >> _W(7)) - _W(1)
    behind = ~((before << _W(8)) | _W(0xFF))
    return ((words & before) << _W(8)) | (words & behind)
