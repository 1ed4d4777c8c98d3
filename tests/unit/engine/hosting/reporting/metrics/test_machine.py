"""Metrics of the machine, from files of Linux that a test writes."""

import pytest

from penstock.engine.hosting.reporting.metrics.taskmanager import Machine, add_machine_metrics
from penstock.engine.metrics.registry import Registry
from penstock.engine.metrics.scopes import query_id

NET = "Inter-| Receive\n face |bytes\n  eth0: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n"
MEMORY = "MemTotal: 100 kB\nMemAvailable: 40 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "meminfo").write_text(MEMORY)
    return tmp_path


def write(proc, ticks: str, received: int, sent: int) -> None:
    (proc / "stat").write_text(f"cpu  {ticks} 0 0\ncpu0 {ticks} 0 0\nintr 5\n")
    (proc / "net" / "dev").write_text(NET.format(received=received, sent=sent))


def values(registry: Registry) -> dict:
    return {query_id(one.groups, one.name): one.value for one in registry.measured()}


def test_shares_and_rates_are_of_the_time_between_two_readings(proc):
    clock, registry = Clock(), Registry()
    write(proc, "100 0 100 800 0 0 0 0", 1000, 5000)
    add_machine_metrics(registry, Machine(5000, str(proc), clock))
    assert "System.CPU.Usage" not in values(registry)
    clock.now = 10
    write(proc, "130 10 120 830 5 1 2 2", 3000, 5500)
    registry.update()
    found = values(registry)
    cpu = {
        name: found[f"System.CPU.{name}"]
        for name in ("User", "Nice", "Sys", "Idle", "IOWait", "Irq", "SoftIrq", "Steal")
    }
    assert cpu == {
        "User": 30, "Nice": 10, "Sys": 20, "Idle": 30, "IOWait": 5, "Irq": 1, "SoftIrq": 2,
        "Steal": 2,
    }  # fmt: skip
    assert found["System.CPU.Usage"] == found["System.CPU.UsageCPU0"] == 65
    assert found["System.Network.eth0.ReceiveRate"] == 200
    assert found["System.Network.eth0.SendRate"] == 50


def test_it_reads_no_more_often_than_it_should(proc):
    clock, registry = Clock(), Registry()
    write(proc, "0 0 0 0 0 0 0 0", 0, 0)
    add_machine_metrics(registry, Machine(20_000, str(proc), clock))
    write(proc, "50 0 0 50 0 0 0 0", 100, 100)
    clock.now = 19
    registry.update()
    assert "System.CPU.Usage" not in values(registry)
    clock.now = 20
    registry.update()
    assert values(registry)["System.CPU.Usage"] == 50


def test_memory_and_swap_are_told_in_bytes(proc):
    registry = Registry()
    add_machine_metrics(registry, Machine(5000, str(proc)))
    found = values(registry)
    assert (found["System.Memory.Total"], found["System.Memory.Available"]) == (102_400, 40_960)
    assert (found["System.Swap.Total"], found["System.Swap.Used"]) == (10_240, 6144)


def test_where_the_files_are_missing_there_are_no_such_metrics(tmp_path):
    registry = Registry()
    add_machine_metrics(registry, Machine(5000, str(tmp_path)))
    assert {name for name in values(registry) if "Load" not in name} == set()
