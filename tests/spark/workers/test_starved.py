"""A TaskManager that gets no processor is told from one that is lost: its kernel answers, and it goes on where it was."""

import contextlib
import os
import signal
from collections import Counter
from dataclasses import replace

import pytest

from penstock.common import WatermarkStrategy
from penstock.datastream.connectors import NumberSequenceSource
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.hosting.program.spark_host import SparkHost
from tests.spark.processes import taskmanagers_left
from tests.spark.programs import environment

pytestmark = [pytest.mark.spark, pytest.mark.long]


class Waking(JobObserver):
    """Lets a TaskManager and its supervisor go on when the driver tells that it is starved, or lost."""

    def __init__(self) -> None:
        self.processes: dict[str, tuple[int, int]] = {}
        self.told = []

    def on_register_task_manager(self, message) -> None:
        self.processes[message.resource_id] = (message.supervisor_pid, message.pid)

    def on_task_manager_starved(self, event) -> None:
        self.told.append(event.cause)
        for pid in self.processes[event.resource_id]:
            os.kill(pid, signal.SIGCONT)

    def on_task_manager_lost(self, event) -> None:
        self.on_task_manager_starved(replace(event, cause=f"lost: {event.cause}"))


def test_a_taskmanager_without_a_processor_is_not_lost(spark_cluster, tmp_path):
    once = str(tmp_path / "once")

    def stop_once(value):
        """As if both processes got no processor any more."""
        with contextlib.suppress(FileExistsError):
            os.close(os.open(once, os.O_CREAT | os.O_EXCL))
            os.kill(os.getppid(), signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
        return value % 10

    observer = Waking()
    env = environment(2).use_executor(ClusterExecutor(SparkHost(), observer))
    source = NumberSequenceSource(0, 999)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    with numbers.map(stop_once).execute_and_collect("starved") as found:
        assert Counter(found) == dict.fromkeys(range(10), 100)
    (cause,) = observer.told
    assert "gets no processor" in cause
    assert not taskmanagers_left()
