"""What is read of a reporter's settings. Source: Flink ReporterSetup."""

import pytest

from penstock.engine.metrics.scopes import Component, Place
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.metrics import Measured, MetricType
from penstock.ops.metrics.entities import ReportedMetric
from penstock.ops.reporters.settings import reporters_in

SLF4J = "org.apache.flink.metrics.slf4j.Slf4jReporterFactory"
PLACE = Place(Component.TASKMANAGER, {"host": "h.1", "tm_id": "t"})
METRIC = ReportedMetric(PLACE, Measured("seen", MetricType.COUNTER, 1))


def settings(**more):
    """`more`: of the reporter `x`, with `_` for dots."""
    own = {f"metrics.reporter.x.{key.replace('_', '.')}": value for key, value in more.items()}
    return {"metrics.reporter.x.factory.class": SLF4J, **own}


def reporter(**more):
    (found,) = reporters_in(Settings(settings(**more)))
    return found


def names(given):
    return [one.name for one in reporters_in(Settings(given))]


def test_all_reporters_with_a_factory_are_started():
    given = {
        "metrics.reporter.b.factory.class": SLF4J,
        "metrics.reporter.a.factory.class": "x.Y",
        "metrics.reporter.c.interval": "1 s",
    }
    assert names(given) == ["a", "b"]
    assert names({}) == []


def test_only_those_that_are_named_are_started():
    assert names({**settings(), "metrics.reporters": "y, x"}) == ["y", "x"]


def test_a_reporter_can_be_set_in_sparks_configuration():
    given = {f"spark.penstock.{key}": value for key, value in settings(interval="3 s").items()}
    (found,) = reporters_in(Settings(spark=given))
    assert (found.name, found.factory, found.interval_s) == ("x", "Slf4jReporterFactory", 3.0)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (SLF4J, "Slf4jReporterFactory"),
        ("org.example.Slf4jReporterFactory", "org.example.Slf4jReporterFactory"),
        (None, None),
    ],
)
def test_a_factory_of_flink_is_known_by_its_class(given, name):
    key = {} if given is None else {"metrics.reporter.x.factory.class": given}
    (found,) = reporters_in(Settings({"metrics.reporters": "x", **key}))
    assert found.factory == name


def test_the_interval_is_10_s_unless_it_is_set():
    assert reporter().interval_s == 10.0
    assert reporter(interval="250 ms").interval_s == 0.25


@pytest.mark.parametrize("text", ["0", "soon"])
def test_an_interval_that_is_none_is_told(text):
    with pytest.raises(ConfigurationError, match="metrics.reporter.x.interval"):
        _ = reporter(interval=text).interval_s


@pytest.mark.parametrize(
    ("own", "everywhere", "used"),
    [(None, None, "."), (None, "/", "/"), ("|", "/", "|"), ("||", "/", "/")],
)
def test_the_delimiter_is_the_reporters_own_if_it_is_one_character(own, everywhere, used):
    given = settings(**({} if own is None else {"scope_delimiter": own}))
    given |= {} if everywhere is None else {"metrics.scope.delimiter": everywhere}
    (found,) = reporters_in(Settings(given))
    host = "h_1" if used == "." else "h.1"
    assert found.selection().identifier(METRIC) == used.join((host, "taskmanager", "t", "seen"))


def test_variables_are_left_out_and_added():
    chosen = reporter(
        scope_variables_excludes="host;nothing", scope_variables_additional="region:north,zone:1"
    ).selection()
    assert chosen.variables(METRIC) == {"tm_id": "t", "region": "north", "zone": "1"}


def test_filters_are_lists_whose_rules_have_commas():
    chosen = reporter(
        filter_includes="jobmanager:*;taskmanager:seen,other", filter_excludes="*:other"
    ).selection()
    assert chosen.takes(METRIC)
    other = ReportedMetric(PLACE, Measured("other", MetricType.COUNTER, 1))
    assert not chosen.takes(other)
    third = ReportedMetric(PLACE, Measured("third", MetricType.COUNTER, 1))
    assert not chosen.takes(third)


def test_a_list_of_allowed_texts_is_read():
    assert reporter(allowList="q,taskmanager.se").selection().takes(METRIC)
    assert not reporter(allowList="q,taskmanager.x").selection().takes(METRIC)


def test_options_of_reporters_have_an_effect_and_others_of_theirs_are_told():
    given = Settings(settings(interval="1 s", portt="1"))
    assert given.ignored_keys() == ["metrics.reporter.x.portt"]
