"""Release on consumption: both shapes of the count."""

import pytest

from penstock.engine.model.errors import EngineBug
from penstock.engine.runtime.network.partition.result_partition import ReleaseOnConsumption


def test_the_older_shape_is_released_by_the_last_consumer():
    users = ReleaseOnConsumption(3, is_producer_a_user=False)
    assert [users.consumed(index) for index in (0, 1, 1, 2)] == [False, False, False, True]
    assert not users.closed_by_producer()
    assert users.is_released


def test_the_newer_shape_waits_for_the_producer():
    users = ReleaseOnConsumption(2)
    assert [users.consumed(index) for index in (1, 0, 0)] == [False] * 3
    assert users.closed_by_producer()
    assert not users.closed_by_producer()


def test_a_producer_that_goes_first_is_one_user_only():
    users = ReleaseOnConsumption(1)
    assert not users.closed_by_producer()
    assert not users.closed_by_producer()
    assert users.consumed(0)


@pytest.mark.parametrize("index", [-1, 2])
def test_a_subpartition_that_is_not_there_cannot_have_been_consumed(index):
    with pytest.raises(EngineBug, match="has 2"):
        ReleaseOnConsumption(2).consumed(index)
