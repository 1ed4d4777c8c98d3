"""Jobs over two TaskManagers with little network memory: bounded, complete, and refused where it cannot work."""

import threading

import pytest

from penstock.common import WatermarkStrategy
from penstock.datastream import MapFunction, StreamExecutionEnvironment
from penstock.datastream.connectors import NumberSequenceSource
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.taskmanager.task.thread import TaskThread
from penstock.engine.model.errors import JobExecutionError
from tests.tools.programs.environments import minicluster_environment
from tests.tools.waiting import wait_until

RECORD = 2000


class Shared:
    """What the functions of a job tell the test and wait for."""

    def __init__(self) -> None:
        self.read = 0
        self.failures = 0
        self.values = set()
        self.held = threading.Event()
        self.go_on = threading.Event()


SHARED = Shared()


class Gatekeeper(MapFunction):
    """Stops at the first record until the test lets it go on."""

    def map(self, value):
        SHARED.held.set()
        assert SHARED.go_on.wait(60)
        SHARED.read += 1
        return len(value)


def environment(
    parallelism: int = 2, **options: str
) -> tuple[StreamExecutionEnvironment, MiniCluster]:
    SHARED.__init__()
    given = {key.replace("__", "-").replace("_", "."): value for key, value in options.items()}
    cluster = MiniCluster(parallelism=parallelism)
    return minicluster_environment(cluster, given), cluster


def numbers(env, count: int):
    return env.from_source(
        NumberSequenceSource(1, count), WatermarkStrategy.no_watermarks(), "Numbers"
    )


def wide(value: int) -> str:
    return f"{value:0{RECORD}}"


def queued_bytes(cluster: MiniCluster) -> int:
    """In all remote channels."""
    planes = [manager.data_plane for manager in cluster.last_provider.managers.values()]
    connections = [connection for plane in planes for connection in plane.peers.everybody()]
    return sum(
        c.queued_bytes for connection in connections for c in list(connection.channels.values())
    )


def is_held_up(task: TaskThread) -> bool:
    return task.built is not None and not task.built.task.is_output_available


def test_a_consumer_that_stops_stops_the_source_and_memory_stays_bounded():
    env, cluster = environment(  # Only memory holds the sources up, not the time in flight.
        taskmanager_memory_network="2 mb", penstock_exchange_in__flight__time="0 ms"
    )
    numbers(env, 20_000).map(wide).rebalance().map(Gatekeeper()).print()
    client = env.execute_async("slow consumer")
    assert SHARED.held.wait(30)
    managers = list(cluster.last_provider.managers.values())
    tasks = [task for manager in managers for task in manager.tasks()]
    sources = [task for task in tasks if "Numbers" in task.deployment.vertex_name]
    queued = wait_until(
        lambda: all(map(is_held_up, sources)) and queued_bytes(cluster),
        "the sources were not held up",
    )
    assert queued <= 2 << 20
    for manager in managers:
        memory = manager.data_plane.memory
        assert memory.buffers_in_use * memory.buffer_bytes <= 2 << 20
    written = sum(task.io().records_out for task in sources)
    assert written < 5000  # of 20,000: 4 MB of network memory hold 2,000 of them
    SHARED.go_on.set()
    assert client.get_job_execution_result().result() is not None
    assert SHARED.read == 20_000


def test_a_debloated_job_loses_nothing():
    env, cluster = environment(
        taskmanager_network_memory_buffer__debloat_enabled="true",
        taskmanager_network_memory_buffer__debloat_period="5 ms",
        taskmanager_network_memory_buffer__debloat_target="1 ms",
        taskmanager_network_memory_buffer__debloat_samples="1",
    )
    stream = numbers(env, 20_000).map(wide).rebalance().map(len)
    with stream.execute_and_collect("debloated") as results:
        assert sum(results) == 20_000 * RECORD
    assert cluster.last_provider is not None


def test_gates_may_live_of_floating_buffers_alone():
    env, _ = environment(
        taskmanager_network_memory_read__buffer_required__per__gate_max="1",
        taskmanager_network_memory_floating__buffers__per__gate="1",
    )
    with numbers(env, 5000).rebalance().map(lambda v: v).execute_and_collect("floating") as got:
        assert sorted(got) == list(range(1, 5001))


def test_too_little_network_memory_is_told_with_the_option_to_change():
    env, _ = environment(taskmanager_memory_network="64 kb")
    numbers(env, 10).rebalance().map(lambda v: v).print()
    with pytest.raises(JobExecutionError, match="insufficient number of network buffers") as failed:
        env.execute("too small")
    assert "taskmanager.memory.network" in str(failed.value)


class FailsAtFirst(MapFunction):
    """Several times over."""

    def map(self, value):
        if SHARED.failures < 8:
            SHARED.failures += 1
            raise ValueError(f"failure {SHARED.failures}")
        SHARED.values.add(value)
        return value


def test_tasks_that_fail_give_their_buffers_back():
    env, _ = environment(
        taskmanager_memory_network="320 kb",  # ten buffers: one attempt requires six in each TaskManager
        **{
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "9",
            "restart-strategy.fixed-delay.delay": "0 ms",
        },
    )
    numbers(env, 2000).rebalance().map(FailsAtFirst()).filter(lambda value: value < 0).print()
    env.execute("restarted")
    assert SHARED.failures == 8
    assert SHARED.values == set(range(1, 2001))
