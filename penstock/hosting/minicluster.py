"""MiniCluster: TaskManagers as threads of this process, the same code and sockets, no Spark.

For tests and the debugger (`breakpoint()` in a user function works); never the place for real data.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.hosting.provider import MasterAddress, OnEnded
from penstock.hosting.taskmanager.taskmanager import TaskManager, TaskManagerConfig
from penstock.hosting.wire.addresses import Endpoint
from penstock.model.errors import ConfigurationError
from penstock.model.ids import ResourceId
from penstock.model.program import ProgramSettings
from penstock.model.slot_size import UNSIZED, SlotSize

_STOP_WAIT_S: Final = 5.0
_LOOPBACK: Final = "127.0.0.1"


class ThreadProvider:
    """Starts TaskManagers as threads."""

    def __init__(self, slots: int, max_taskmanagers: int | None = None) -> None:
        self.slots_per_taskmanager = slots
        self._max = max_taskmanagers
        self._master: MasterAddress | None = None
        self._on_ended: OnEnded = lambda _resource_id, _cause: None
        self._threads: list[threading.Thread] = []
        self.managers: dict[ResourceId, TaskManager] = {}

    @property
    def shares_files(self) -> bool:
        return True

    @property
    def control_endpoint(self) -> Endpoint:
        return Endpoint(_LOOPBACK)

    def registered(self, resource_id: ResourceId) -> None:
        """Threads need no more than `stop`."""

    def max_taskmanagers(self, wanted: int | None = None) -> int | None:
        return self._max

    def task_slots_for(self, taskmanagers: Mapping[SlotSize, int]) -> int:
        return sum(taskmanagers.values())  # a thread takes what there is

    def bring_files(self, program: ProgramSettings) -> None:
        refuse_files(program)

    def describe(self) -> str:
        return "a MiniCluster in this process"

    def open(self, master: MasterAddress, on_ended: OnEnded) -> None:
        self._master = master
        self._on_ended = on_ended

    def start(self, resource_id: ResourceId, size: SlotSize = UNSIZED) -> None:
        master = self._master
        assert master is not None
        config = TaskManagerConfig(
            resource_id=resource_id,
            master_host=master.host,
            master_port=master.port,
            credentials=master.credentials,
            data=Endpoint(_LOOPBACK),
            slots=1 if size else self.slots_per_taskmanager,
            size=size,
            heartbeat_interval_s=master.heartbeat_interval_s,
            task_settings=replace(master.task_settings, checks_threads=True),
            silence_timeout_s=master.silence_timeout_s,
        )
        manager = TaskManager(config)
        self.managers[resource_id] = manager

        def run() -> None:
            self._on_ended(resource_id, manager.run())

        thread = threading.Thread(target=run, name=f"penstock-{resource_id}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self, resource_id: ResourceId) -> None:
        manager = self.managers.pop(resource_id, None)
        if manager is not None:
            manager.abandon()

    def close(self) -> None:
        for resource_id in list(self.managers):
            self.stop(resource_id)
        for thread in self._threads:
            thread.join(_STOP_WAIT_S)


def import_here(python_files: Sequence[str]) -> None:
    """Have this process import the modules that a program names for its functions, which run in it.

    They stay importable after the job. Raises: ConfigurationError for a missing file.
    """
    for path in [Path(one.removeprefix("file://")).absolute() for one in python_files]:
        if not path.exists():
            raise ConfigurationError(
                f"add_python_file: there is no file or directory {str(path)!r}"
            )
        place = str(path.parent if path.suffix == ".py" else path)
        if place not in sys.path:
            sys.path.insert(0, place)
    importlib.invalidate_caches()


def refuse_files(program: ProgramSettings) -> None:
    """Raises: ConfigurationError: the program brings some for its functions, which run in this process as it is."""
    if program.python_archives or program.python_requirements:
        raise ConfigurationError(
            "add_python_archive and set_python_requirements are for jobs on Spark: a MiniCluster runs functions in this process. "
            "Install the packages here, and leave both out of what the test runs."
        )
