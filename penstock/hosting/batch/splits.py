"""All splits of a bounded source, shared out before its stage starts. User code on the driver.

Each reader asks in turn until it is told that there is no more, so that an enumerator shares out as it does in a streaming
job with readers of one pace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.model.errors import GraphError
from penstock.runtime.sources.contract import Source


class _Readers:
    """`runtime.sources.contract.EnumeratorContext`."""

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
            f"the source '{self._name}' looks for new splits every {period_ms} ms, so that it has no end, but "
            "execution.runtime-mode is BATCH. Bound it, or set the runtime mode to STREAMING."
        )


def splits_of(source: Source, name: str, parallelism: int) -> list[list[Any]]:
    """By subtask. Raises: GraphError: the source has no end; what the enumerator raises."""
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
                    f"the enumerator of '{name}' neither assigns splits nor signals that there are no more "
                    f"(subtasks that wait: {sorted(set(range(parallelism)) - readers.ended)}). A bounded source has to, "
                    "at the latest when its readers ask."
                )
    finally:
        enumerator.close()
    return readers.splits
