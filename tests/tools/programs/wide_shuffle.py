"""python -m tests.tools.programs.wide_shuffle SUBTASKS DESCRIPTORS FOLDER STEP: so many producers and consumers in one process.

Each producer writes one record for each consumer and an event for all. Each consumer has views of all results open at once and reads
them in turns, as a gate does. Only each STEP-th consumer reads. Prints how many files there were.
"""

import os
import resource
import sys
from collections import deque
from pathlib import Path

from penstock.runtime.elements import EndOfPartition, RowBatch, Watermark
from penstock.runtime.network.partition.result_partition import ResultPartition
from tests.tools.runtime.partitions import SORT_MERGE, ViewListener, blocking


def produced(producer: int, subtasks: int, folder: Path) -> ResultPartition:
    made = blocking(folder, SORT_MERGE, subpartitions=subtasks, buffer=4096, sort_bytes=1 << 24)
    for consumer, subpartition in enumerate(list(made.subpartitions)):
        subpartition.write(RowBatch([producer * subtasks + consumer]))
    made.broadcast_event(Watermark(producer))
    made.finish()
    return made


def consumed(consumer: int, results: list[ResultPartition]) -> int:
    """Reads everything in turns. Returns: the sum of the records. Raises: AssertionError: an event is missing."""
    listener = ViewListener()
    waiting = deque(result.create_view(consumer, listener) for result in results)
    total = watermarks = 0
    while waiting:
        view = waiting.popleft()
        element = view.poll().element
        if isinstance(element, RowBatch):
            total += sum(element.values)
        elif isinstance(element, EndOfPartition):
            view.release()
            continue
        else:
            watermarks += 1
        waiting.append(view)
    assert watermarks == len(results)
    return total


def main(subtasks: int, descriptors: int, folder: Path, step: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    results = []
    for producer in range(subtasks):
        below = folder / str(producer)
        below.mkdir()
        results.append(produced(producer, subtasks, below))
    files = sum(len(names) for _, _, names in os.walk(folder))
    for consumer in range(0, subtasks, step):
        expected = sum(range(consumer, subtasks * subtasks, subtasks))
        assert consumed(consumer, results) == expected, "records are missing"
    for result in results:
        result.release()
    left = sum(len(names) for _, _, names in os.walk(folder))
    print(f"{files} files, {left} left")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
