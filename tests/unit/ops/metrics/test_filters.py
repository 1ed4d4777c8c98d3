"""Which metrics a reporter's filters let through. Source: Flink DefaultMetricFilter."""

import pytest

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.metrics import MetricType
from penstock.ops.metrics.filters import MetricFilter

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
