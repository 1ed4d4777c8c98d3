"""What a reporter shows of a metric: whether it does, its name, its variables. Source: Flink MetricRegistryImpl, ReporterScopedSettings."""

from penstock.engine.metrics.scopes import Component, Place
from penstock.engine.model.metrics import Measured, MetricType
from penstock.ops.metrics.entities import ReportedMetric
from penstock.ops.metrics.filters import MetricFilter
from penstock.ops.metrics.selection import Selection

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
