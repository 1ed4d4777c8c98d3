"""Aggregations over entities, by the cases of Flink's endpoints."""

import pytest

from penstock.ops.metrics.aggregation import ALL, Aggregated, Aggregation, aggregated, skew

VALUES = [{"a": "1", "b": "x"}, {"a": "3", "b": "2"}, {"c": "5"}]


def test_an_entity_without_the_metric_does_not_count():
    (found,) = aggregated(["a"], VALUES)
    assert found == Aggregated(
        "a",
        {
            Aggregation.MIN: 1, Aggregation.MAX: 3, Aggregation.AVG: 2, Aggregation.SUM: 4,
            Aggregation.SKEW: 50,
        },
    )  # fmt: skip


def test_a_metric_that_is_no_number_is_left_out():
    assert [one.id for one in aggregated(["b", "a"], VALUES)] == ["a"]


def test_a_metric_that_nobody_has_empties_the_whole_answer():
    assert aggregated(["a", "nothing"], VALUES) == []
    assert aggregated(["a"], []) == []


def test_only_the_wanted_numbers_are_there():
    (found,) = aggregated(["c"], VALUES, frozenset({Aggregation.MAX}))
    assert dict(found.numbers) == {Aggregation.MAX: 5}
    assert set(aggregated(["c"], VALUES)[0].numbers) == ALL


@pytest.mark.parametrize(
    ("numbers", "percent"),
    [
        ([5], 0),
        ([0, 0], 0),
        ([4, 4, 4], 0),
        ([1, 3], 50),
        ([0, 0, 0, 12], 100),
        ([2, 4, 6], 100 / 3),
    ],
)
def test_the_skew_is_the_mean_deviation_in_percent_of_the_mean(numbers, percent):
    assert skew(numbers) == pytest.approx(percent)
