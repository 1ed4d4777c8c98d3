"""Kinds with bounds, and those of a few texts."""

from enum import StrEnum

import pytest

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.option import duration, one_of, strategy_name, whole, within


class Colour(StrEnum):
    RED = "RED"
    BLUE = "BLUE"


@pytest.mark.parametrize(
    ("given", "takes"), [(0, "at least 1 and at most 5"), ("6", "at least 1 and at most 5")]
)
def test_a_number_out_of_its_bounds_is_refused_with_both(given, takes):
    option = within(whole, 1, 5)("test.number", "2")
    assert [option.parse(one) for one in (1, "5")] == [1, 5]
    with pytest.raises(
        ConfigurationError, match=f"option 'test.number' is '{given}', but it takes {takes}"
    ):
        option.parse(given)


def test_bounds_of_durations_have_a_unit():
    with pytest.raises(ConfigurationError, match="'9 ms', but it takes at least 10 ms. Change"):
        within(duration, 10)("test.time", "1 s").parse("9 ms")


def test_one_of_an_enum_is_read_as_it():
    option = one_of(Colour, str.upper)("test.colour", "RED")
    assert option.parse(" blue") is Colour.BLUE
    with pytest.raises(ConfigurationError, match="'green', but it takes one of RED, BLUE"):
        option.parse("green")
    with pytest.raises(ConfigurationError):
        one_of(Colour)("test.colour", "RED").parse("blue")


def test_an_older_key_has_the_same_bounds():
    option = within(whole, 1)("test.new", "1", older="test.old")
    with pytest.raises(ConfigurationError, match=r"'test\.old' is '0'"):
        option.fallback.parse("0")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("off", "none"), ("DISABLE", "none"), ("fixeddelay", "fixed-delay"),
        ("Failure-Rate", "failure-rate"), ("exponentialdelay", "exponential-delay"),
    ],
)  # fmt: skip
def test_strategies_have_several_names(given, name):
    assert strategy_name(given) == name
