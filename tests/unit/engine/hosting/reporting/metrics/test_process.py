"""Metrics of this process by Flink's names."""

import gc
import threading

from penstock.engine.hosting.reporting.metrics.process import (
    CpuLoad,
    GarbageTimes,
    driver_place,
    driver_registry,
    machine_memory,
    resident_bytes,
    thread_count,
)
from penstock.engine.metrics.scopes import Component
from penstock.ops.metrics.entities import JobManagerScope
from penstock.ops.metrics.store import MetricStore


class Clock:
    def __init__(self, *times: int) -> None:
        self.times = list(times)

    def __call__(self) -> int:
        return self.times.pop(0)


def test_the_drivers_process_is_put_into_the_store_as_the_jobmanager():
    store = MetricStore()
    place = driver_place("host")
    store.put(place, driver_registry().measured())
    assert place.component is Component.JOBMANAGER
    found = store.values(JobManagerScope())
    assert 0 < int(found["Status.JVM.Memory.Heap.Used"]) < int(found["Status.JVM.Memory.Heap.Max"])
    assert int(found["Status.JVM.Memory.Heap.Max"]) == machine_memory()
    assert int(found["Status.JVM.Threads.Count"]) >= 1
    assert int(found["Status.JVM.FileDescriptor.Open"]) < int(
        found["Status.JVM.FileDescriptor.Max"]
    )
    assert int(found["Status.JVM.CPU.Time"]) > 0
    assert (found["Status.JVM.Memory.NonHeap.Used"], found["Status.JVM.Memory.NonHeap.Max"]) == (
        "0",
        "-1",
    )


def test_the_driver_has_a_place_even_if_nobody_names_its_host():
    assert driver_place().variables["host"]


def test_the_load_is_a_share_of_all_cores():
    load = CpuLoad(Clock(0, 10**9, 10**9))
    load.update()
    assert 0 <= load.share <= 1
    before = load.share
    load.update()
    assert load.share == before, "no time has passed"


def test_collections_are_timed_by_generation():
    times = GarbageTimes(Clock(1_000_000, 4_000_000, 10_000_000, 12_000_000))
    times.hook("stop", {"generation": 2})
    for generation in (0, 2):
        times.hook("start", {"generation": generation})
        times.hook("stop", {"generation": generation})
    assert [times.ms(generation) for generation in range(3)] == [3, 0, 2]


def test_collections_of_this_process_count():
    registry = driver_registry()
    before = {(one.groups, one.name): one.value for one in registry.measured()}
    gc.collect()
    after = {(one.groups, one.name): one.value for one in registry.measured()}
    (key,) = [key for key in after if key[1] == "Count" and key[0][-1][0] == "All"]
    assert after[key] > before[key]


def test_a_thread_more_is_one_more():
    go, runs = threading.Event(), threading.Event()

    def wait() -> None:
        runs.set()
        go.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        assert runs.wait(10)
        assert thread_count() >= 2
    finally:
        go.set()
        thread.join()


def test_a_process_has_memory():
    assert resident_bytes() > 1 << 20
