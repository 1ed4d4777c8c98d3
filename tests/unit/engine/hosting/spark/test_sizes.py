"""Slots of a given size: what each kind of Spark master can give, and what it says when it cannot."""

import threading
from dataclasses import replace

import pytest

from penstock.engine.hosting.spark.slots import LargeOnesFirst, SparkSize
from penstock.engine.model.slot_size import describe, slot_size

CLUSTER = SparkSize("local-cluster[2,3,1024]", 1, 3, "1g", is_dynamic=False, resources=frozenset())
LOCAL = replace(CLUSTER, master="local[4]", executor_cores=None)
YARN = replace(CLUSTER, master="yarn", executor_cores=2, is_dynamic=True)


def test_a_size_is_described_in_words():
    size = slot_size({"cpu": 2, "heap": 256, "managed": 256, "gpu": 1, "offheap": 0})
    assert describe(size) == "2 cores, 512 MiB of memory, 1 gpu"
    assert describe(slot_size({"cpu": 1})) == "1 core"


@pytest.mark.parametrize(
    ("where", "size", "says"),
    [
        (LOCAL, {"cpu": 2}, "local[4] runs tasks of one core"),
        (LOCAL, {"cpu": 1, "heap": 64}, "do not set resources"),
        (CLUSTER, {"cpu": 4}, "the largest executor of local-cluster[2,3,1024] has 3 cores"),
        (CLUSTER, {"cpu": 1, "managed": 64}, "spark.dynamicAllocation.enabled"),
        (CLUSTER, {"gpu": 1}, "spark.executor.resource.gpu.amount"),
    ],
)
def test_what_cannot_be_given_is_refused_with_the_reason(where, size, says):
    refusal = where.refusal(slot_size(size))
    assert refusal is not None
    assert says in refusal


@pytest.mark.parametrize(
    ("where", "size"),
    [
        (LOCAL, {"cpu": 0.5}),
        (LOCAL, {"cpu": 1}),
        (CLUSTER, {"cpu": 3}),
        (replace(CLUSTER, resources=frozenset({"gpu"})), {"gpu": 1}),
        (YARN, {"cpu": 8, "heap": 4096, "gpu": 1}),
    ],
)
def test_what_can_be_given_is_not_refused(where, size):
    assert where.refusal(slot_size(size)) is None


def test_parts_of_a_core_take_a_whole_one():
    assert CLUSTER.cpus_for(slot_size({"cpu": 0.5})) == 1
    assert CLUSTER.cpus_for(slot_size({"cpu": 1.5})) == 2
    assert replace(CLUSTER, task_cpus=2).cpus_for(slot_size({"cpu": 1})) == 2


def test_the_usual_task_needs_no_profile():
    assert CLUSTER.profile(slot_size({"cpu": 1})) is None
    assert CLUSTER.profile(()) is None


TWO = slot_size({"cpu": 2})


@pytest.mark.parametrize(
    ("taskmanagers", "executors", "fits"),
    [
        ({(): 2, TWO: 2}, [3, 3], True),
        ({TWO: 3}, [3, 3], False),
        ({(): 3, TWO: 2}, [3, 3], False),
        ({(): 1, TWO: 1}, [1, 2], True),
        ({TWO: 9}, [], True),
    ],
)
def test_sizes_must_fit_beside_each_other(taskmanagers, executors, fits):
    refusal = CLUSTER.packing_refusal(taskmanagers, executors)
    assert (refusal is None) is fits
    if refusal is not None:
        assert "do not fit into the executors" in refusal


def test_executors_that_come_as_needed_are_not_packed():
    assert YARN.packing_refusal({TWO: 9}, [2]) is None


def test_small_ones_wait_for_the_large():
    large = LargeOnesFirst()
    large.wait(0)
    large.begin("tm-1")
    order = []

    def small():
        large.wait(60)
        order.append("small")

    thread = threading.Thread(target=small)
    thread.start()
    order.append("large")
    large.end("tm-1")
    thread.join()
    assert order == ["large", "small"]
