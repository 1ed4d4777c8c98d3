"""How a Dispatcher tries clean-ups again, by docs/spec/options.md#clean-up-of-ended-jobs."""

import pytest

from penstock.engine.machines.dispatcher.settings import dispatcher_settings_of
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError


def pauses(count, **options):
    """The pauses after the first so many failures, in ms."""
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    settings = dispatcher_settings_of(Settings(named))
    return [settings.retry_after(failures) for failures in range(1, count + 1)]


def test_pauses_double_up_to_an_hour_without_end():
    found = pauses(40)
    assert found[:4] == [1000, 2000, 4000, 8000]
    assert set(found[12:]) == {3_600_000}


def test_exponential_pauses_as_they_are_set():
    options = {
        "cleanup_strategy__exponential_delay__initial_backoff": "10 ms",
        "cleanup_strategy__exponential_delay__max_backoff": "25 ms",
        "cleanup_strategy__exponential_delay__attempts": "3",
    }
    assert pauses(5, **options) == [10, 20, 25, None, None]


@pytest.mark.parametrize("name", ["fixed-delay", "fixeddelay", "Fixed-Delay"])
def test_a_fixed_pause_is_a_minute_unless_it_is_set(name):
    assert pauses(3, cleanup_strategy=name) == [60_000] * 3
    options = {
        "cleanup_strategy__fixed_delay__delay": "5 s",
        "cleanup_strategy__fixed_delay__attempts": "2",
    }
    assert pauses(3, cleanup_strategy=name, **options) == [5000, 5000, None]


@pytest.mark.parametrize("name", ["none", "disable", "off"])
def test_without_a_strategy_nothing_is_tried_again(name):
    assert pauses(2, cleanup_strategy=name) == [None, None]


def test_the_older_name_of_the_strategy_counts():
    assert pauses(1, cleanup_strategy__type="none") == [None]


@pytest.mark.parametrize(
    "options",
    [
        {"cleanup_strategy": "sometimes"},
        {"cleanup_strategy": "fixed-delay", "cleanup_strategy__fixed_delay__delay": "0 ms"},
        {"cleanup_strategy__exponential_delay__attempts": "-1"},
    ],
)
def test_what_makes_no_sense_is_refused(options):
    with pytest.raises(ConfigurationError, match="cleanup-strategy"):
        pauses(1, **options)
