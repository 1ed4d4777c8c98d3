"""Metrics of functions as they are reported."""

from fractions import Fraction

from penstock.engine.hosting.reporting.metrics.operators import Allowance, UserMetricsView
from penstock.engine.model.metrics import Distribution, MetricType, Rate
from penstock.engine.runtime.user_metrics import MOST_CHARACTERS, MOST_NUMBERS, UserMetrics


def view():
    metrics = UserMetrics()
    group = metrics.group_of("uid", "Map")
    allowance = Allowance()
    return group, UserMetricsView(lambda: metrics.of("uid"), allowance), allowance


def values(found) -> dict:
    return {one.name: one.value for one in found.measured()}


def test_each_kind_has_flinks_type_and_value():
    group, found, _ = view()
    group.counter("c").inc(3)
    group.meter("m").mark_event(5)
    distribution = group.distribution("d")
    distribution.update(4)
    distribution.update(-2)
    assert {one.name: (one.type, one.value) for one in found.measured()} == {
        "c": (MetricType.COUNTER, 3),
        "m": (MetricType.METER, Rate(0.0, 5)),
        "d": (MetricType.GAUGE, Distribution(2, 2, -2, 4)),
    }


def test_a_meter_has_the_rate_of_its_own_span():
    group, found, _ = view()
    short, long = group.meter("short", 5), group.meter("long", 60)
    for meter in (short, long):
        meter.mark_event(30)
    found.update()
    assert values(found) == {"short": Rate(6.0, 30), "long": Rate(0.5, 30)}
    found.update()
    assert values(found) == {"short": Rate(0.0, 30), "long": Rate(0.5, 30)}


def test_a_distribution_appears_with_its_first_value():
    group, found, _ = view()
    group.distribution("d")
    assert values(found) == {}


def test_a_distribution_of_other_numbers_than_ints_is_told_as_a_text():
    group, found, _ = view()
    group.distribution("d").update(0.5)
    group.distribution("huge").update(2**70)
    told = values(found)
    assert told["d"] == "DistributionResult{sum=0.5, count=1, min=0.5, max=0.5}"
    assert told["huge"].startswith("DistributionResult{sum=1180591620717411303424,")


def test_a_count_that_is_no_int_is_left_out():
    group, found, _ = view()
    group.counter("c").inc(Fraction(1, 2))
    group.meter("m").mark_event(0.5)
    group.counter("good")
    assert values(found) == {"good": 0}


def test_key_value_groups_are_told_apart_from_plain_ones():
    group, found, _ = view()
    group.add_group("a").add_group("b").counter("plain")
    group.add_group("a", "b").counter("pair")
    assert group.add_group("a", "b") is group.add_group("a", "b")
    assert group.add_group("a") is not group.add_group("a", "b")
    groups = {one.name: one.groups for one in found.measured()}
    assert groups == {"plain": (("a", None), ("b", None)), "pair": (("a", "b"),)}


def test_more_metrics_than_a_task_may_have_are_counted_in_each_report():
    group, found, allowance = view()
    for number in range(MOST_NUMBERS + 7):
        group.counter(f"c{number}")
    for _ in range(2):
        allowance.begin()
        assert len(values(found)) == MOST_NUMBERS
        assert allowance.left_out == 7


def test_a_name_that_is_too_long_with_its_groups_is_counted():
    group, found, allowance = view()
    group.add_group("g").counter("x" * (MOST_CHARACTERS - 2))
    group.add_group("g").counter("x" * (MOST_CHARACTERS - 1))
    assert len(values(found)) == 1
    assert allowance.left_out == 1
