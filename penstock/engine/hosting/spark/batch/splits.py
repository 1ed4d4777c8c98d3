"""Assigns all splits of a bounded source before its stage starts. Runs user code on the driver.

Each reader asks in turn until it is told that there are no more splits. So an enumerator assigns
them as in a streaming job whose readers are equally fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.engine.model.errors import GraphError
from penstock.engine.runtime.sources.contract import Source


class _Readers:
    """`engine.runtime.sources.contract.EnumeratorContext`."""

    def __init__(self, name: str, parallelism: int) -> None:
        self._name = name
        self.splits: list[list[Any]] = [[] for _ in range(parallelism)]
        self.ended: set[int] = set()

    def parallelism(self) -> int:
        return len(self.splits)

    def registered_readers(self) -> Sequence[int]:
        return range(len(self.splits))

    def assign_splits(self, subtask: int, splits: Sequence[Any]) -> None:
        self.splits[subtask].extend(splits)

    def signal_no_more_splits(self, subtask: int) -> None:
        self.ended.add(subtask)

    def call_periodically(self, period_ms: int, call: Callable[[], None]) -> None:
        raise GraphError(
            f"the source '{self._name}' looks for new splits every {period_ms} ms and so "
            "has no end, but execution.runtime-mode is BATCH. Make the source bounded, or "
            "set the runtime mode to STREAMING."
        )


def splits_of(source: Source, name: str, parallelism: int) -> list[list[Any]]:
    """Return the splits of each subtask. Raises: GraphError: the source never ends; what the
    enumerator raises.
    """
    readers = _Readers(name, parallelism)
    enumerator = source.in_batch().create_enumerator(readers)
    try:
        enumerator.start()
        for subtask in range(parallelism):
            enumerator.add_reader(subtask)
        while len(readers.ended) < parallelism:
            before = sum(map(len, readers.splits)) + len(readers.ended)
            for subtask in range(parallelism):
                if subtask not in readers.ended:
                    enumerator.handle_split_request(subtask, "")
            if sum(map(len, readers.splits)) + len(readers.ended) == before:
                raise GraphError(
                    f"the enumerator of '{name}' neither assigns splits nor signals that "
                    "there are no more (waiting subtasks: "
                    f"{sorted(set(range(parallelism)) - readers.ended)}). The enumerator of a "
                    "bounded source must do one of the two whenever a reader asks."
                )
    finally:
        enumerator.close()
    return readers.splits
