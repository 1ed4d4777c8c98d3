"""The Penstock side of a Spark task of a BATCH job."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable, Iterator
from typing import Final

from penstock.hosting.batch.batch_task import BatchTask, Orders
from penstock.hosting.batch.runner import failure_of
from penstock.hosting.batch.shuffle_output import FRAME_PARTITION
from penstock.model.messages import FailureInfo

_KEY: Final = struct.Struct("!q")
_BEGIN: Final = "---- Penstock: failure of a subtask ----"
_END: Final = "---- Penstock: end of failure"


class SubtaskFailed(Exception):
    """Its text is all that Spark takes to the driver: `failure_in` finds the failure there."""

    def __init__(self, failure: FailureInfo) -> None:
        told = json.dumps({"kind": failure.kind, "is_user_code": failure.is_user_code})
        super().__init__(f"\n{_BEGIN}\n{failure.text}\n{_END} {told}\n")


def run(
    orders: bytes,
    subtask: int,
    attempt: int,
    records: Iterator[bytes],
    tell_aside: Callable[[bytes], None] | None,
) -> Iterator[bytes]:
    """See `spark_task.run_subtask`. `orders`: pickled, from the driver, whom Spark vouches for. `tell_aside`: takes what is for
    the driver; None: that is one of the records.
    """
    told: Orders = pickle.loads(orders)
    for partition, record in _records(told, subtask, attempt, records):
        if tell_aside is not None and partition == told.driver_partition:
            tell_aside(record)
            continue
        yield _KEY.pack(partition)
        yield record


def frames(orders: bytes, subtask: int, attempt: int, records: Iterator[bytes]) -> Iterator[bytes]:
    """Of the stage that a DataFrame goes on from: its Arrow messages only. Arguments: see `run`."""
    for partition, record in _records(pickle.loads(orders), subtask, attempt, records):
        if partition == FRAME_PARTITION:
            yield record


def _records(
    told: Orders, subtask: int, attempt: int, records: Iterator[bytes]
) -> Iterator[tuple[int, bytes]]:
    try:
        yield from BatchTask(told, subtask, attempt, records).run()
    except Exception as error:  # whatever it was, Spark is told in our words
        failure = failure_of(error)
        where = f"  in task:     {told.vertex_name} ({subtask + 1}/{told.parallelism}), attempt {attempt}"
        placed = FailureInfo(failure.kind, f"{failure.text}\n{where}", failure.is_user_code)
        raise SubtaskFailed(placed) from None


def failure_in(text: str) -> FailureInfo | None:
    """What a subtask has told, in the text of Spark's error; None: it was not a subtask that failed."""
    begin = text.find(_BEGIN)
    end = text.find(_END, begin)
    if begin < 0 or end < 0:
        return None
    told, _ = json.JSONDecoder().raw_decode(text[end + len(_END) :].lstrip())
    return FailureInfo(told["kind"], text[begin + len(_BEGIN) : end].strip(), told["is_user_code"])
