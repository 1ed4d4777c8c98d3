"""A provider of null TaskManagers, which live in a few processes beside the driver. See `null_taskmanagers`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Mapping

from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.hosting.provider import HostChanges, HostLoss, MasterAddress, OnEnded
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.program import ProgramSettings
from penstock.engine.model.slot_size import UNSIZED, SlotSize


class NullProvider:
    """`processes`: how many the TaskManagers are shared out to. `supervised`: each has the connection of a supervisor too, as on Spark."""

    shares_files = True
    control_endpoint = Endpoint("127.0.0.1")

    def __init__(self, slots: int, processes: int = 1, *, supervised: bool = False) -> None:
        self.slots_per_taskmanager = slots
        self._supervised = supervised
        self._count = processes
        self._processes: dict[subprocess.Popen[str], threading.Thread] = {}
        self._process_of: dict[ResourceId, subprocess.Popen[str]] = {}
        self.largest: Counter[str] = Counter()
        """Bytes of the largest message of each kind, when it is closed."""

    def open(self, master: MasterAddress, on_ended: OnEnded) -> None:
        credentials, checkpointing = master.credentials, master.task_settings.checkpointing
        order = {
            "host": master.host,
            "port": master.port,
            "identity": credentials.identity.pem.decode(),
            "token": credentials.token,
            "cluster_id": credentials.cluster_id,
            "slots": self.slots_per_taskmanager,
            "interval_s": master.heartbeat_interval_s,
            "supervised": self._supervised,
            "checkpoints": "" if checkpointing is None else checkpointing.directory,
        }
        for _ in range(self._count):
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.workloads.null_taskmanagers"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            reader = threading.Thread(target=self._read, args=(process, on_ended), daemon=True)
            reader.start()
            self._processes[process] = reader
            _write(process, json.dumps(order))

    def start(self, resource_id: ResourceId, size: SlotSize = UNSIZED) -> None:
        process = [*self._processes][len(self._process_of) % self._count]
        self._process_of[resource_id] = process
        _write(process, f"start {resource_id}")

    def lose(self, resource_ids: Iterable[ResourceId]) -> None:
        """Close their connections, as if their machines had failed."""
        for resource_id in resource_ids:
            _write(self._process_of[resource_id], f"lose {resource_id}")

    def close(self) -> None:
        for process, reader in self._processes.items():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            reader.join()
            process.stdout.close()
            process.wait()

    def _read(self, process: subprocess.Popen[str], on_ended: OnEnded) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            said = json.loads(line)
            if "failed" in said:
                on_ended(ResourceId(said["failed"]), said["cause"])
            for kind, size in said.get("largest", {}).items():
                self.largest[kind] = max(size, self.largest[kind])

    def max_taskmanagers(self, _wanted: int | None = None) -> int | None:
        return None

    def task_slots_for(self, taskmanagers: Mapping[SlotSize, int]) -> int:
        return sum(taskmanagers.values())

    def bring_files(self, program: ProgramSettings, modules: bytes = b"") -> None: ...
    def leave(self, resource_ids: tuple[ResourceId, ...]) -> None: ...
    def gone(self) -> str | None: ...
    def registered(self, resource_id: ResourceId) -> None: ...
    def progress(self, resource_id: ResourceId) -> int | None: ...
    def stop(self, resource_id: ResourceId) -> None: ...
    def why_gone(self, executor: str) -> HostLoss | None: ...

    def describe(self) -> str:
        return "null TaskManagers"

    def has_free_slots(self) -> bool:
        return True

    def changes(self) -> HostChanges:
        return HostChanges()


def _write(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
