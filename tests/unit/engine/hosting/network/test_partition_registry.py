"""PartitionRegistry: who finds what, who waits for how long, and that nothing outlives it."""

import pytest

from penstock.engine.hosting.network.partition_registry import PartitionRegistry
from penstock.engine.model.errors import EngineBug, PartitionConnectionError
from tests.tools.runtime.partitions import pipelined, result_partition_id


def test_a_request_that_comes_first_waits_for_its_partition():
    registry, part, found = PartitionRegistry(), pipelined(), []
    registry.request(part.partition_id, found.append, 0.0)
    assert not found
    registry.register(part)
    registry.request(part.partition_id, found.append, 1.0)
    assert found == [part, part]
    assert registry.find(part.partition_id) is part


def test_a_request_that_waits_too_long_is_answered_with_nothing():
    registry, found = PartitionRegistry(request_timeout_s=5.0), []
    registry.request(result_partition_id(0), found.append, 0.0)
    registry.request(result_partition_id(0), found.append, 3.0)
    registry.expire(4.9)
    assert not found
    registry.expire(5.0)
    assert found == [None]
    registry.expire(8.0)
    assert found == [None, None]


def test_a_partition_is_registered_once():
    registry, part = PartitionRegistry(), pipelined()
    part.setup(registry)
    with pytest.raises(EngineBug, match="twice"):
        pipelined().setup(registry)
    assert len(registry) == 1


def test_what_is_released_is_not_found_and_an_unknown_one_does_no_harm():
    registry, part = PartitionRegistry(), pipelined()
    part.setup(registry)
    registry.release(part.partition_id, "failed")
    registry.release(part.partition_id)
    assert (part.is_released, part.failure) == (True, "failed")
    assert registry.find(part.partition_id) is None


def test_at_the_end_everything_goes_and_nothing_comes():
    registry, part, found = PartitionRegistry(), pipelined(), []
    part.setup(registry)
    registry.request(result_partition_id(7), found.append, 0.0)
    registry.close()
    assert part.is_released
    with pytest.raises(PartitionConnectionError, match="ending"):
        pipelined(index=1).setup(registry)
    registry.expire(1e9)
    assert (len(registry), found) == (0, [])
