"""Slot sharing groups with the resources that they ask for. Does not know any slot.

Source: pyflink.datastream.slot_sharing_group; differs: a group may ask for cores alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.slot_size import SlotSize, slot_size

KIB: Final = 1024
_UNITS: Final = ("bytes", "kb", "mb", "gb", "tb")


@dataclass(frozen=True, slots=True, order=True)
class MemorySize:
    """An amount of memory in bytes."""

    bytes_size: int

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """Return a size of this many MiB."""
        return MemorySize(mebi_bytes * KIB**2)

    def __str__(self) -> str:
        """The size in the largest unit of which it is a whole number: `100 mb`."""
        count, unit = self.bytes_size, 0
        while count and count % KIB == 0 and unit < len(_UNITS) - 1:
            count, unit = count // KIB, unit + 1
        return f"{count} {_UNITS[unit]}"

    def get_bytes(self) -> int:
        """Return the size in bytes."""
        return self.bytes_size

    def get_kibi_bytes(self) -> int:
        """Return the size in whole KiB, rounded down."""
        return self.bytes_size // KIB

    def get_mebi_bytes(self) -> int:
        """Return the size in whole MiB, rounded down."""
        return self.bytes_size // KIB**2

    def get_gibi_bytes(self) -> int:
        """Return the size in whole GiB, rounded down."""
        return self.bytes_size // KIB**3

    def get_tebi_bytes(self) -> int:
        """Return the size in whole TiB, rounded down."""
        return self.bytes_size // KIB**4


@dataclass(frozen=True, slots=True)
class SlotSharingGroup:
    """Names a group of operators that share slots, with the resources of a slot; None: unknown."""

    name: str
    cpu_cores: float | None = None
    task_heap_memory: MemorySize | None = None
    task_off_heap_memory: MemorySize | None = None
    managed_memory: MemorySize | None = None
    external_resources: dict[str, float] = field(default_factory=dict)

    def get_name(self) -> str:
        """Return the group's name."""
        return self.name

    def get_managed_memory(self) -> MemorySize | None:
        """Return the managed memory of a slot; None: unknown."""
        return self.managed_memory

    def get_task_heap_memory(self) -> MemorySize | None:
        """Return the heap memory of a slot; None: unknown."""
        return self.task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        """Return the memory of a slot outside of the heap; None: unknown."""
        return self.task_off_heap_memory

    def get_cpu_cores(self) -> float | None:
        """Return the CPU cores of a slot, perhaps a part of one; None: unknown."""
        return self.cpu_cores

    def get_external_resources(self) -> dict[str, float]:
        """Return the amounts of other resources of a slot, by name."""
        return dict(self.external_resources)

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        """Return a builder of a group with this name."""
        return SlotSharingGroup.Builder(name)

    class Builder:
        """Builds a SlotSharingGroup; the setters return the builder."""

        def __init__(self, name: str) -> None:
            if not name:
                raise ConfigurationError("a slot sharing group needs a non-empty name.")
            self._name = name
            self._cpu_cores: float | None = None
            self._memory: dict[str, MemorySize] = {}
            self._external: dict[str, float] = {}

        def set_cpu_cores(self, cpu_cores: float) -> SlotSharingGroup.Builder:
            """Set the CPU cores of a slot; fractions are possible."""
            if cpu_cores <= 0:
                raise ConfigurationError(f"cpu_cores must be above 0, got {cpu_cores}.")
            self._cpu_cores = cpu_cores
            return self

        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            if task_heap_memory.get_bytes() <= 0:
                raise ConfigurationError(
                    f"task_heap_memory must be above 0, got {task_heap_memory}. Leave it out to "
                    "ask for no memory."
                )
            return self._set("task_heap_memory", task_heap_memory)

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set the heap memory of a slot in MiB."""
            return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

        def set_task_off_heap_memory(
            self, task_off_heap_memory: MemorySize
        ) -> SlotSharingGroup.Builder:
            return self._set("task_off_heap_memory", task_off_heap_memory)

        def set_task_off_heap_memory_mb(
            self, task_off_heap_memory_mb: int
        ) -> SlotSharingGroup.Builder:
            """Set the memory of a slot outside the heap in MiB."""
            size = MemorySize.of_mebi_bytes(task_off_heap_memory_mb)
            return self._set("task_off_heap_memory", size)

        def set_managed_memory(self, managed_memory: MemorySize) -> SlotSharingGroup.Builder:
            return self._set("managed_memory", managed_memory)

        def set_managed_memory_mb(self, managed_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set the managed memory of a slot in MiB."""
            return self._set("managed_memory", MemorySize.of_mebi_bytes(managed_memory_mb))

        def set_external_resource(self, name: str, value: float) -> SlotSharingGroup.Builder:
            """Set the amount of another resource, such as GPUs."""
            self._external[name] = value
            return self

        def build(self) -> SlotSharingGroup:
            """Return the group.

            Raises:
                ConfigurationError: it asks for memory or other resources, but not for both cores
                    and heap memory.
            """
            memory = self._memory
            if memory or self._external:
                if self._cpu_cores is None or "task_heap_memory" not in memory:
                    raise ConfigurationError(
                        f"slot sharing group {self._name!r} asks for memory or other resources, "
                        "but not for both cores and heap memory. Call set_cpu_cores and "
                        "set_task_heap_memory_mb, too."
                    )
                nothing = MemorySize(0)
                memory = {"task_off_heap_memory": nothing, "managed_memory": nothing, **memory}
            return SlotSharingGroup(
                self._name, self._cpu_cores, external_resources=self._external, **memory
            )

        def _set(self, name: str, size: MemorySize) -> SlotSharingGroup.Builder:
            self._memory[name] = size
            return self


def slot_size_of(group: SlotSharingGroup) -> SlotSize:
    """The resources that the group asks for; empty if it sets none."""
    memory = {
        "heap": group.task_heap_memory,
        "offheap": group.task_off_heap_memory,
        "managed": group.managed_memory,
    }
    amounts = {name: size.get_bytes() / KIB**2 for name, size in memory.items() if size}
    return slot_size({**group.external_resources, "cpu": group.cpu_cores or 0.0, **amounts})
