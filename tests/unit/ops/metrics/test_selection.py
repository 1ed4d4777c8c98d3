"""What a reporter shows of a metric: whether it does, its name, its variables. Source: Flink MetricRegistryImpl, ReporterScopedSettings."""

import pytest

from penstock.engine.metrics.scopes import Component, Place
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.metrics import Measured, MetricType
from penstock.ops.metrics.entities import ReportedMetric
from penstock.ops.metrics.selection import MetricFilter, Selection

COUNTER, GAUGE, METER, HISTOGRAM = MetricType
TASK = "taskmanager.job.task"


@pytest.mark.parametrize("type_", list(MetricType))
def test_without_rules_everything_is_reported(type_):
    assert MetricFilter().takes(TASK, "numRecordsIn", type_)


@pytest.mark.parametrize(
    ("rule", "scope", "name", "type_", "fits"),
    [
        ("*", TASK, "a", GAUGE, True),
        (TASK, TASK, "a", GAUGE, True),
        (TASK, f"{TASK}.operator", "a", GAUGE, False),
        (f"{TASK}*", f"{TASK}.operator", "a", GAUGE, True),
        ("*:numRecords*", TASK, "numRecordsOut", COUNTER, True),
        ("*:numRecords*", TASK, "xnumRecordsOut", COUNTER, False),
        ("*:numRecords", TASK, "numRecordsOut", COUNTER, False),
        ("*:a,b", TASK, "b", COUNTER, True),
        ("*:a,b", TASK, "ab", COUNTER, False),
        ("*:*:meter,histogram", TASK, "a", METER, True),
        ("*:*:METER", TASK, "a", METER, True),
        ("*:*:meter,histogram", TASK, "a", GAUGE, False),
        ("jobmanager.job,taskmanager", "taskmanager", "a", GAUGE, True),
        ("jobmanager.job,taskmanager", "jobmanager", "a", GAUGE, False),
        ("taskmanager.job", "taskmanager-job", "a", GAUGE, True),
    ],
    ids=str,
)
def test_a_rule_has_scope_names_and_types_that_match_as_a_whole(rule, scope, name, type_, fits):
    assert MetricFilter([rule]).takes(scope, name, type_) is fits
    assert MetricFilter(excludes=[rule]).takes(scope, name, type_) is not fits


def test_one_of_several_rules_is_enough():
    both = MetricFilter(["a:*", "b:*"])
    assert [both.takes(one, "x", GAUGE) for one in "abc"] == [True, True, False]


def test_what_is_excluded_is_not_reported_even_if_it_is_included():
    found = MetricFilter(["*:num*"], ["*:numBytes*", "*:*:meter"])
    assert found.takes(TASK, "numRecordsIn", COUNTER)
    assert not found.takes(TASK, "numBytesIn", COUNTER)
    assert not found.takes(TASK, "numRecordsInPerSecond", METER)


@pytest.mark.parametrize("rule", ["*:*:number", "*:(", "a:b:counter:d"])
def test_a_rule_that_cannot_be_read_is_told(rule):
    with pytest.raises(ConfigurationError, match="cannot be read") as told:
        MetricFilter([rule])
    assert repr(rule) in str(told.value)


PLACE = Place(
    Component.OPERATOR,
    {
        "host": "h.1",
        "tm_id": "t",
        "job_name": "my job",
        "operator_name": "m" * 90,
        "subtask_index": "3",
    },
)
GROUPS = (("my grp", None), ("k.1", "v:1"))


def metric(name="seen", groups=GROUPS):
    return ReportedMetric(PLACE, Measured(name, MetricType.COUNTER, 1, groups))


def test_variables_are_those_of_the_place_and_of_key_value_groups():
    found = Selection().variables(metric())
    assert found == {**PLACE.variables, "operator_name": "m" * 80, "k.1": "v:1"}


def test_variables_can_be_left_out_and_added():
    chosen = Selection(excluded=frozenset({"host", "k.1"}), additional={"region": "north"})
    found = chosen.variables(metric())
    assert "host" not in found
    assert "k.1" not in found
    assert found["region"] == "north"


def test_a_variable_of_the_metric_wins_against_an_additional_one():
    assert Selection(additional={"tm_id": "other"}).variables(metric())["tm_id"] == "t"


def test_the_identifier_has_the_reporters_delimiter():
    name = f"h.1|taskmanager|t|my job|{'m' * 80}|3|my grp|k.1|v:1|seen"
    assert Selection(delimiter="|").identifier(metric()) == name


def test_filters_see_the_logical_scope():
    scope = "taskmanager.job.task.operator.my grp.k_1"
    chosen = Selection(filter=MetricFilter([f"{scope}:seen:counter"]))
    assert chosen.takes(metric())
    assert not chosen.takes(metric("other"))
    assert not chosen.takes(metric(groups=()))


def test_filters_see_the_delimiter_of_all_reporters_not_the_reporters_own():
    chosen = Selection(
        filter=MetricFilter(["taskmanager/job/task/operator"]), delimiter="|", scope_delimiter="/"
    )
    assert chosen.takes(metric(groups=()))


def test_a_list_of_allowed_texts_is_looked_for_in_scope_and_name():
    chosen = Selection(allowed=("nothing", "operator.num"))
    assert chosen.takes(metric("numRecordsIn", ()))
    assert not chosen.takes(metric("seen", ()))
