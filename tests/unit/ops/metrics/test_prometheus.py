"""Families, labels and values as Flink's reporter for Prometheus has them. Source: Flink AbstractPrometheusReporter."""

import math

import pytest

from penstock.engine.metrics.scopes import Component, Place
from penstock.engine.model.metrics import Distribution, Measured, MetricType, Quantiles, Rate
from penstock.ops.metrics.entities import ReportedMetric
from penstock.ops.metrics.prometheus import Families, filtered, label_name
from penstock.ops.metrics.selection import MetricFilter, Selection

VARIABLES = {
    "host": "127.0.0.1", "tm_id": "127.0.0.1:39837-77f77f", "job_name": "obs test 1",
    "operator_name": "Source: my src",
}  # fmt: skip
LABELS = {
    "host": "127_0_0_1", "tm_id": "127_0_0_1:39837_77f77f", "job_name": "obs_test_1",
    "operator_name": "Source:_my_src",
}  # fmt: skip
PLACE = Place(Component.OPERATOR, VARIABLES)
OPERATOR = "flink_taskmanager_job_task_operator"
HISTOGRAM = Quantiles(
    count=125, min=0, max=99, mean=1.0, stddev=2.0,
    p50=50.0, p75=75.5, p90=90.0, p95=95.0, p98=98.0, p99=99.0, p999=99.9,
)  # fmt: skip


def metric(value, type_=MetricType.GAUGE, name="seen", groups=(), place=PLACE):
    return ReportedMetric(place, Measured(name, type_, value, groups))


def families(*metrics, selection=None, **how):
    found = Families(selection or Selection(), **how)
    found.take(metrics)
    return {family.name: family for family in found}


def samples(*metrics, **how):
    return [line for family in families(*metrics, **how).values() for line in family.samples()]


def test_a_name_has_scope_groups_and_name_and_of_a_pair_only_the_key():
    groups = (("my grp", None), ("k.1", "v:1 x"))
    (family,) = families(metric(3, MetricType.COUNTER, "my counter", groups)).values()
    assert family.name == f"{OPERATOR}_my_grp_k_1_my_counter"
    scope = "taskmanager_job_task_operator_my_grp_k_1"
    assert family.documentation == f"my counter (scope: {scope})"
    assert list(family.samples()) == [(family.name, {**LABELS, "k_1": "v:1_x"}, 3.0)]


def test_values_of_labels_can_keep_all_characters():
    groups = (("k.1", "v:1 x"),)
    ((_, labels, _),) = samples(metric(3, groups=groups), filters_values=False)
    assert labels == {**VARIABLES, "k_1": "v:1 x"}


@pytest.mark.parametrize("type_", [MetricType.COUNTER, MetricType.GAUGE, MetricType.METER])
def test_counters_gauges_and_meters_are_gauges(type_):
    (family,) = families(metric(3, type_)).values()
    assert family.type == "gauge"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (7, 7.0),
        (0.25, 0.25),
        (True, 1.0),
        (False, 0.0),
        ("a text", 0.0),
        ("12", 0.0),
        (-(2**63), -(2.0**63)),
        (Rate(8.25, 99), 8.25),
    ],
    ids=str,
)
def test_a_value_is_a_double_and_a_text_is_0(value, shown):
    assert samples(metric(value)) == [(f"{OPERATOR}_seen", LABELS, shown)]


def test_a_value_that_is_no_number_stays_so():
    ((_, _, value),) = samples(metric(math.nan))
    assert math.isnan(value)


def test_a_histogram_is_a_summary_with_flinks_quantiles_and_a_count():
    (family,) = families(metric(HISTOGRAM, MetricType.HISTOGRAM, "h")).values()
    assert family.type == "summary"
    name = f"{OPERATOR}_h"
    quantiles = {
        "0.5": 50.0, "0.75": 75.5, "0.95": 95.0, "0.98": 98.0, "0.99": 99.0, "0.999": 99.9,
    }  # fmt: skip
    lines = [(name, {**LABELS, "quantile": q}, value) for q, value in quantiles.items()]
    assert list(family.samples()) == [*lines, (f"{name}_count", LABELS, 125.0)]


def test_a_distribution_is_a_summary_and_its_bounds_are_gauges():
    found = families(metric(Distribution(6285, 125, 0, 99), name="d"))
    assert {name: one.type for name, one in found.items()} == {
        f"{OPERATOR}_d": "summary",
        f"{OPERATOR}_d_min": "gauge",
        f"{OPERATOR}_d_max": "gauge",
    }
    lines = {name: value for one in found.values() for name, _, value in one.samples()}
    assert lines == {
        f"{OPERATOR}_d_count": 125.0, f"{OPERATOR}_d_sum": 6285.0,
        f"{OPERATOR}_d_min": 0.0, f"{OPERATOR}_d_max": 99.0,
    }  # fmt: skip


def test_metrics_of_several_places_are_one_family():
    other = Place(Component.OPERATOR, {**VARIABLES, "tm_id": "other"})
    group = (("g", "1"),)
    (family,) = families(metric(1), metric(2, place=other), metric(3)).values()
    assert [(labels["tm_id"], value) for _, labels, value in family.samples()] == [
        (LABELS["tm_id"], 3.0), ("other", 2.0),
    ]  # fmt: skip
    assert len(families(metric(1, groups=group), metric(2))) == 2


def test_each_line_has_its_own_labels():
    """Flink drops the second one, because its labels are others."""
    pair, plain = (("g", "1"),), (("g", None),)
    (family,) = families(metric(1, groups=pair), metric(2, groups=plain)).values()
    assert [labels.get("g") for _, labels, _ in family.samples()] == ["1", None]


def test_a_name_has_one_type():
    found = Families(Selection())
    found.take([
        metric(1, name="a b"),
        metric(HISTOGRAM, MetricType.HISTOGRAM, "a_b"),
        metric(2, name="c"),
    ])
    assert {family.name: family.type for family in found} == {
        f"{OPERATOR}_a_b": "gauge", f"{OPERATOR}_c": "gauge",
    }  # fmt: skip
    assert found.left_out == {f"{OPERATOR}_a_b"}


def test_only_metrics_that_the_reporter_shows_are_there():
    chosen = Selection(
        filter=MetricFilter(excludes=["*:b"]),
        excluded=frozenset({"host", "tm_id"}),
        additional={"region": "n.1"},
    )
    labels = {k: v for k, v in LABELS.items() if k not in {"host", "tm_id"}}
    assert samples(metric(1, name="a"), metric(1, name="b"), selection=chosen) == [
        (f"{OPERATOR}_a", {**labels, "region": "n_1"}, 1.0)
    ]


def test_characters_of_names_and_of_labels():
    assert filtered("a:b c->d_1.ü") == "a:b_c__d_1__"
    assert label_name("a:b c") == "a_b_c"
    assert label_name("1st") == "_1st"
    assert label_name("") == "_"
