"""Tracebacks are small, have Python's form, and tell the error whatever its class does."""

import traceback

import pytest

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.messages import FailureInfo
from penstock.engine.model.texts.bounded_text import MOST_OF_MESSAGE
from penstock.engine.model.texts.error_text import headline_of, text_for_user, traceback_of

HUGE = 250_000_000


class Huge(Exception):
    def __str__(self):
        return "x" * HUGE


class Endless(Exception):
    def __str__(self):
        text = "x"
        while text:
            text = "x"
        return text


class Raising(Exception):
    def __str__(self):
        raise KeyboardInterrupt


def raised(error, cause=None):
    try:
        throw(error, cause)
    except BaseException as caught:
        return caught


def throw(error, cause):
    raise error from cause


def test_an_ordinary_error_has_pythons_own_text():
    error = raised(ValueError("outer"), raised(KeyError("inner")))
    assert traceback_of(error) == "".join(traceback.format_exception(error)).rstrip()


def test_a_group_has_pythons_own_text():
    error = raised(ExceptionGroup("several", [raised(ValueError("a")), raised(KeyError("b"))]))
    assert traceback_of(error) == "".join(traceback.format_exception(error)).rstrip()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (Huge, "Huge: xxx"),
        (lambda: ValueError("x" * HUGE), "ValueError: xxx"),
        (lambda: KeyError("x" * HUGE), "KeyError: 'xxx"),
        (Endless, "Endless: <Endless whose str took too long>"),
        (Raising, "Raising: <exception str() failed>"),
        (lambda: ValueError(Endless()), "ValueError: <ValueError whose str took too long>"),
    ],
    ids=["huge", "huge argument", "huge key", "endless", "raising", "endless argument"],
)
def test_a_text_that_is_huge_endless_or_raises_hides_nothing(make, told):
    text = traceback_of(raised(ValueError("the last"), raised(make())))
    assert len(text) < MOST_OF_MESSAGE + 100
    assert told in text
    assert "test_error_text.py" in text
    assert text.index(told) < text.index("direct cause") < text.index("ValueError: the last")


def test_many_causes_with_huge_texts_are_cut_and_the_error_itself_is_told():
    error = raised(Huge())
    for number in range(300):
        error = raised(Huge() if number % 100 == 0 else ValueError(f"number {number}"), error)
    text = traceback_of(error)
    assert len(text) < MOST_OF_MESSAGE + 100
    assert "… cut: more than 50 causes" in text or "… cut: " in text
    assert text.endswith("ValueError: number 299")


def test_a_note_that_does_not_end_is_left_out():
    error = raised(ValueError("noted"))
    error.__notes__ = [Endless()]
    assert "ValueError: noted" in traceback_of(error)


def test_a_circle_of_causes_ends():
    first, second = raised(Huge()), raised(Huge())
    first.__cause__, second.__cause__ = second, first
    assert len(traceback_of(first)) < MOST_OF_MESSAGE + 100


@pytest.mark.parametrize(
    ("text", "headline"),
    [
        ("Traceback (most recent call last):\n  File x\nValueError: no\n", "ValueError: no"),
        ("ValueError: no\n  in map 'x'", "ValueError: no"),
        ("Traceback (most recent call last):\n  File x", "OSError"),
        ("", "OSError"),
    ],
)
def test_the_headline_of_a_traceback_is_the_errors_own_line(text, headline):
    assert headline_of(text, "OSError") == headline


class Closed(Exception):
    """Lets nobody read its causes, notes or frames."""

    def __getattribute__(self, name):
        if name in {"__cause__", "__context__", "__notes__", "__traceback__", "__dict__"}:
            raise SystemExit("closed")
        return super().__getattribute__(name)


@pytest.mark.parametrize("told", [traceback_of, text_for_user])
def test_an_error_that_hides_its_causes_is_told_with_its_frames(told):
    text = told(raised(Closed("the text")))
    assert text.startswith("Closed: the text\n")
    assert "in throw\n    raise error from cause" in text


@pytest.mark.parametrize("told", [traceback_of, text_for_user])
def test_half_characters_become_escapes_that_every_file_takes(told):
    text = told(raised(ValueError("half \ud800, whole \U0001f600")))
    assert "half \\ud800, whole \U0001f600" in text
    text.encode()


@pytest.mark.parametrize("told", [traceback_of, text_for_user])
def test_an_error_of_ours_is_named_without_its_module_but_one_of_the_user_with_it(told):
    text = told(raised(ConfigurationError("no such option"), KeyError("x")))
    assert "\nConfigurationError: no such option" in f"\n{text}"
    assert "penstock.engine" not in text
    users = type("Bad", (Exception,), {"__module__": "prices.checks"})
    assert "prices.checks.Bad: too low" in told(raised(users("too low")))


def test_the_text_of_an_error_does_not_steer_a_terminal():
    error = ValueError("no number: \x1b[2J")
    assert text_for_user(error) == r"ValueError: no number: \u001b[2J"
    assert traceback_of(error) == r"ValueError: no number: \u001b[2J"
    assert FailureInfo("ValueError", "\x1b[2J").text == r"\u001b[2J"
