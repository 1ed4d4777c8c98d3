"""The resources that a slot sharing group asks for: plain amounts by name.

`cpu` is in cores; `heap`, `offheap` and `managed` are in MiB, and for Python all three are the same memory; all other
names are extended resources. An empty size asks for nothing: any slot fits. Source: Flink SlotSharingGroup
(fine-grained resource management).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from penstock.engine.model.texts.amounts import counted

SlotSize: TypeAlias = tuple[tuple[str, float], ...]
UNSIZED: Final[SlotSize] = ()
MEMORY: Final = ("heap", "offheap", "managed")


def slot_size(amounts: Mapping[str, float]) -> SlotSize:
    """The size with these amounts; amounts of 0 are left out."""
    return tuple(sorted((name, float(amount)) for name, amount in amounts.items() if amount))


def cores_of(size: SlotSize) -> float:
    """The cores; 0 if none are asked for."""
    return dict(size).get("cpu", 0.0)


def memory_mb_of(size: SlotSize) -> float:
    return sum(amount for name, amount in size if name in MEMORY)


def extended_of(size: SlotSize) -> dict[str, float]:
    return {name: amount for name, amount in size if name not in {"cpu", *MEMORY}}


def describe(size: SlotSize) -> str:
    """The size in words: `2 cores, 512 MiB of memory, 1 gpu`."""
    parts = []
    if cores := cores_of(size):
        parts.append(counted(cores, "core"))
    if memory := memory_mb_of(size):
        parts.append(f"{memory:g} MiB of memory")
    parts += [f"{amount:g} {name}" for name, amount in extended_of(size).items()]
    return ", ".join(parts) or "of any size"
