"""Slot sharing groups. Expectations: PyFlink's tests of its builder, and docs/concepts/jobs-tasks-slots.md."""

import pytest

from penstock.datastream import MemorySize, SlotSharingGroup
from penstock.datastream.slot_sharing_group import slot_size_of
from penstock.engine.model.errors import ConfigurationError


def test_a_group_with_all_resources_has_them():
    heap, off_heap, managed = map(MemorySize.of_mebi_bytes, (100, 200, 300))
    group = (
        SlotSharingGroup
        .builder("red")
        .set_cpu_cores(1.0)
        .set_task_heap_memory(heap)
        .set_task_off_heap_memory(off_heap)
        .set_managed_memory(managed)
        .set_external_resource("gpu", 1.0)
        .build()
    )
    assert (group.get_name(), group.get_cpu_cores()) == ("red", 1.0)
    assert (group.get_task_heap_memory(), group.get_task_off_heap_memory()) == (heap, off_heap)
    assert group.get_managed_memory() == managed
    assert group.get_external_resources() == {"gpu": 1.0}


def test_memory_that_is_left_out_beside_cores_and_heap_is_none_at_all():
    group = SlotSharingGroup.builder("red").set_cpu_cores(2).set_task_heap_memory_mb(10).build()
    assert group.get_task_off_heap_memory() == group.get_managed_memory() == MemorySize(0)
    assert slot_size_of(group) == (("cpu", 2.0), ("heap", 10.0))


def test_without_any_resource_all_are_unknown():
    group = SlotSharingGroup.builder("red").build()
    assert group.get_cpu_cores() is None
    assert group.get_task_heap_memory() is group.get_task_off_heap_memory() is None
    assert (group.get_managed_memory(), group.get_external_resources()) == (None, {})


def test_a_group_may_ask_for_cores_alone():
    assert slot_size_of(SlotSharingGroup.builder("red").set_cpu_cores(2).build()) == (("cpu", 2.0),)


@pytest.mark.parametrize(
    "ask",
    [
        lambda builder: builder.set_cpu_cores(1.0).set_task_off_heap_memory_mb(10),
        lambda builder: builder.set_task_heap_memory_mb(10),
        lambda builder: builder.set_cpu_cores(1.0).set_managed_memory_mb(10),
        lambda builder: builder.set_cpu_cores(1.0).set_external_resource("gpu", 1.0),
        lambda builder: builder.set_task_heap_memory_mb(10).set_external_resource("gpu", 1.0),
    ],
)
def test_a_group_that_asks_for_memory_or_other_resources_asks_for_cores_and_heap(ask):
    builder = ask(SlotSharingGroup.builder("red"))
    with pytest.raises(ConfigurationError, match=r"'red' .* not for both cores and heap memory"):
        builder.build()
