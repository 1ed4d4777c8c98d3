"""What is registered, and what becomes of metrics that cannot be read."""

from penstock.engine.metrics.histogram import Histogram
from penstock.engine.metrics.registry import Registry
from penstock.engine.model.metrics import Measured, MetricType, Rate, counter, gauge


def values(registry: Registry) -> dict[str, object]:
    return {one.name: one.value for one in registry.measured()}


def test_a_metric_with_a_rate_has_a_meter_beside_it():
    registry = Registry()
    registry.add(counter("numRecordsIn", lambda: 600, has_rate=True))
    registry.update()
    assert values(registry) == {"numRecordsIn": 600, "numRecordsInPerSecond": Rate(10.0, 600)}
    types = {one.name: one.type for one in registry.measured()}
    assert types["numRecordsInPerSecond"] is MetricType.METER


def test_a_metric_that_raises_or_has_no_value_is_left_out_alone():
    registry = Registry()
    registry.add(gauge("bad", lambda: 1 / 0), gauge("none", lambda: None), gauge("good", lambda: 1))
    registry.more(lambda: [Measured("more", MetricType.GAUGE, 2)])
    registry.more(lambda: 1 / 0)
    assert values(registry) == {"good": 1, "more": 2}


def test_the_first_of_a_name_stays_and_groups_tell_names_apart():
    registry = Registry()
    registry.add(
        gauge("a", lambda: 1), gauge("a", lambda: 2), gauge("a", lambda: 3, (("g", None),))
    )
    assert [(one.groups, one.value) for one in registry.measured()] == [
        ((), 1),
        ((("g", None),), 3),
    ]


def test_a_rate_that_cannot_be_updated_keeps_its_value_and_holds_nobody_up():
    registry = Registry()
    reads = iter([300])
    registry.meter("first", lambda: next(reads))
    registry.meter("second", lambda: 600)
    registry.update()
    registry.update()
    assert values(registry) == {"second": Rate(10.0, 600)}


def test_a_histogram_is_read_when_it_is_reported():
    registry, histogram = Registry(), Histogram(10)
    registry.histogram("h", histogram)
    histogram.add(5)
    (found,) = registry.measured()
    assert (found.type, found.value) == (MetricType.HISTOGRAM, histogram.quantiles)
