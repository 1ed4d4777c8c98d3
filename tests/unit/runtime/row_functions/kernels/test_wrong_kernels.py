"""The random functions notice wrong kernels: each of these is wrong for few values, and is a mistake that is easily made."""

import numpy as np
import pyarrow.compute as pc
import pytest

from penstock.runtime.row_functions.kernels import calls, choices, numbers, on_batches, texts
from penstock.runtime.row_functions.kernels.vectors import Of, Vector, either, unusable
from tests.tools.random_kernels import KernelGrammar
from tests.unit.runtime.row_functions.kernels.test_random_kernels import try_functions

pytestmark = [
    pytest.mark.usefixtures("small_batches"),
    pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning"),
]
SEEDS = range(60_000, 64_000)
STEP = 50
LIKELY = {
    "a difference without overflow": 61_150,
    "a remainder with the sign of the dividend": 60_150,
    "a sum without the sign of zero": 60_600,
    "lower case of ASCII for any text": 60_150,
    "upper case of another standard": 61_250,
    "other white space": 61_600,
    "ints compared as floats": 61_650,
    "ints divided as floats": 60_750,
    "None that is equal to a number": 60_250,
    "the smallest int without a sign": 63_250,
}
"""Seeds that noticed when they were looked for; they are tried first, and then the others."""


def plain(operation):
    """An operation of numpy without guards but None."""
    return lambda _given, *given: Vector(
        operation(*(one.data for one in given)), None, unusable(*given)
    )


def safe_divisor(other):
    return np.where(other == 0, 1, other)


def without_nulls(symbol, data, one, other):
    return Vector(data, None, either(one.bad, other.bad))


def chosen_without_bad(kind):
    run = CHOSEN(kind)

    def wrong(given, condition, then, other):
        made = run(given, condition, then, other)
        made.bad = either(condition.bad, other.bad)
        return made

    return wrong


CHOSEN = choices.chosen
ENTRIES = {
    "a sum without overflow": (numbers.INTS, "+", plain(np.add)),
    "a difference without overflow": (numbers.INTS, "-", plain(np.subtract)),
    "a product without overflow": (numbers.INTS, "*", plain(np.multiply)),
    "a quotient that is cut": (
        numbers.INTS,
        "//",
        plain(lambda one, other: np.trunc(one / other).astype(np.int64)),
    ),
    "a remainder with the sign of the dividend": (
        numbers.INTS,
        "%",
        plain(lambda one, other: np.fmod(one, safe_divisor(other))),
    ),
    "a remainder of floats as in C": (numbers.FLOATS, "%", plain(np.fmod)),
    "a quotient of floats by zero": (numbers.FLOATS, "/", plain(np.true_divide)),
    "a sum without the sign of zero": (
        numbers.FLOATS,
        "-",
        plain(lambda one, other: one - other + 0.0),
    ),
    "lower case of ASCII for any text": (texts.PLAIN, "lower", texts.of_texts(pc.ascii_lower)),
    "upper case of another standard": (texts.PLAIN, "upper", texts.of_texts(pc.utf8_upper)),
    "other white space": (
        texts.PLAIN,
        "strip",
        texts.of_ascii(lambda array: pc.ascii_trim(array, " \t\n\r\x0b\x0c")),
    ),
    "halves rounded up": (
        calls._CALLS,
        round,
        calls._whole(lambda one: np.floor(one + 0.5)),
    ),
    "the length in bytes": (
        calls._CALLS,
        len,
        calls._of_one({
            Of.TEXT: (
                Of.INT,
                lambda given, one: Vector(
                    pc
                    .fill_null(pc.binary_length(texts.texts_of(given, one)), 0)
                    .to_numpy()
                    .astype(np.int64),
                    None,
                    unusable(one),
                ),
            )
        }),
    ),
    "the smaller one of NaN": (calls._CALLS, min, calls._extreme(plain(np.minimum))),
}
NAMES = {
    "ints compared as floats": (
        choices,
        "exact",
        lambda _given, one: Vector(one.data.astype(float), one.nulls, one.bad),
    ),
    "ints divided as floats": (
        numbers,
        "divided_ints",
        lambda given, one, other: numbers.divided_floats(
            given, *(Vector(v.data.astype(float), v.nulls, v.bad) for v in (one, other))
        ),
    ),
    "None that is equal to a number": (choices, "_with_nulls", without_nulls),
    "an error in a branch that is not taken": (choices, "chosen", chosen_without_bad),
    "an error that nobody uses": (
        choices,
        "after",
        lambda _given, first, result: result,
    ),
    "the smallest int without a sign": (numbers, "negative_int", plain(np.negative)),
}


def notices(name):
    """The first seeds at which a wrong kernel is noticed."""
    for start in (LIKELY.get(name, SEEDS.start), *range(SEEDS.start, SEEDS.stop, STEP)):
        try:
            try_functions(range(start, start + STEP), KernelGrammar)
        except AssertionError:
            return start
    return None


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(on_batches, "FILTERED_ROWS", 1)
    monkeypatch.setattr(on_batches, "ROWS_PER_STEP", 0)


@pytest.mark.parametrize("name", ENTRIES)
def test_a_wrong_kernel_in_a_table_is_noticed(monkeypatch, name):
    table, key, wrong = ENTRIES[name]
    monkeypatch.setitem(table, key, wrong)
    assert notices(name) is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_kernel_is_noticed(monkeypatch, name):
    monkeypatch.setattr(*NAMES[name])
    assert notices(name) is not None
