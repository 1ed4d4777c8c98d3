"""Texts of users' objects are small and true, whatever the objects do."""

import subprocess
import sys

import pytest

from penstock.common import Row
from penstock.engine.model.errors import CancelSignal
from penstock.engine.model.texts.bounded_text import (
    bounded_repr,
    bounded_str,
    cut,
    cut_lines,
    printable,
    shortened,
)

HUGE = 250_000_000


class Endless:
    def __repr__(self):
        while True:
            pass


class Growing:
    def __repr__(self):
        text = ""
        while True:
            text += "x"


class Deep:
    def __repr__(self):
        return repr(self)


class Raising:
    def __init__(self, error):
        self.error = error

    def __repr__(self):
        raise self.error


class NoText:
    def __repr__(self):
        return 3


def test_a_short_text_stays_and_a_long_one_says_how_much_is_missing():
    assert cut("abc", 3) == "abc"
    assert cut("abcdef", 2) == "ab … cut: 4 characters"
    assert cut("x" * HUGE, 10) == "x" * 10 + " … cut: 250 million characters"
    lines = cut_lines("a" * 500 + "b" * 500, 100)
    assert lines == "a" * 25 + "\n… cut: 900 characters\n" + "b" * 75


@pytest.mark.parametrize(
    "value",
    [
        1,
        "text",
        b"bytes",
        (1, "a"),
        [1, [2]],
        {"k": [1]},
        {1},
        frozenset(),
        None,
        Row(a=1),
        Row(1, 2),
    ],
)
def test_a_small_value_has_its_own_repr(value):
    assert bounded_repr(value) == repr(value)


HUGE_VALUES = {  # Made when they are needed: a test process must not hold all of them.
    "str": lambda: "x" * HUGE,
    "bytes": lambda: b"x" * HUGE,
    "list": lambda: ["x" * HUGE] * 1000,
    "dict": lambda: {"k": "x" * HUGE},
    "Row": lambda: Row(a="x" * HUGE),
    "tuple": lambda: (("x" * HUGE,),),
    "long list": lambda: list(range(1_000_000)),
    "set": lambda: set(range(100_000)),
    "bytearray": lambda: bytearray(HUGE),
}


@pytest.mark.parametrize("kind", HUGE_VALUES)
def test_a_huge_value_has_a_small_repr(kind):
    value = HUGE_VALUES[kind]()
    text = bounded_repr(value, 500)
    assert len(text) < 600
    assert "cut: " in text
    assert (
        text[:20]
        == repr(value if isinstance(value, set | list) and len(value) > 1000 else shrunk(value))[
            :20
        ]
    )


def shrunk(value):
    """The same with short texts."""
    if isinstance(value, str | bytes | bytearray):
        return value[:100]
    if isinstance(value, dict):
        return {key: shrunk(one) for key, one in value.items()}
    if isinstance(value, Row):
        return Row(a=shrunk(value["a"]))
    return type(value)(map(shrunk, value))


@pytest.mark.parametrize("value", [Endless(), Growing(), [Endless()], {"k": Growing()}])
def test_a_repr_that_does_not_end_is_stopped(value):
    assert bounded_repr(value) == f"<{type(value).__name__} whose repr took too long>"


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyboardInterrupt(), SystemExit(1), GeneratorExit(), MemoryError()]
)
def test_a_repr_that_raises_is_replaced(error):
    kind = type(error).__name__
    assert bounded_repr(Raising(error)) == f"<Raising whose repr raised {kind}>"
    assert bounded_str(Raising(error)) == f"<Raising whose str raised {kind}>"


def test_what_is_no_text_and_what_is_too_deep_is_replaced():
    assert bounded_repr(NoText()) == "<NoText whose repr raised TypeError>"
    assert bounded_repr(Deep()) == "<Deep whose repr raised RecursionError>"


def test_a_cancel_is_no_error_of_a_repr():
    with pytest.raises(CancelSignal):
        bounded_repr(Raising(CancelSignal()))


THREADS = """
import sys, threading
from penstock.engine.model.texts.bounded_text import bounded_repr

class Slow:
    def __repr__(self):
        return "".join(str(number) for number in range(20))

def tell():
    for _ in range(200):
        bounded_repr((Slow(), 1))

sys.setswitchinterval(1e-5)
threads = [threading.Thread(target=tell) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_two_threads_make_texts_at_once():
    """In a process of its own: where Python 3.12 takes tracing amiss, the process crashes."""
    subprocess.run([sys.executable, "-c", THREADS], check=True)


def test_a_text_for_one_line_ends_with_an_ellipsis_if_it_is_cut():
    assert shortened("four words of text", 18) == "four words of text"
    assert shortened("four words of text", 12) == "four words…"
    assert len(shortened("x" * 100, 12)) == 12


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\tä\u200f \N{GRINNING FACE}\r\n", None),
        ("\x1b[2J\x00\x7f\x9b1m", r"\u001b[2J\u0000\u007f\u009b1m"),
        ("99 %\rdone", r"99 %\u000ddone"),
        ("a\u202eb\u2066c\u2028d", r"a\u202eb\u2066c\u2028d"),
        ("\ud800", r"\ud800"),
    ],
)
def test_what_steers_a_terminal_becomes_escapes(text, shown):
    assert printable(text) == (text if shown is None else shown)
    assert cut_lines(text, 100) == printable(text) == printable(printable(text))
