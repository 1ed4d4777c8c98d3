"""The Penstock side of a Spark task of a BATCH job."""

from __future__ import annotations

import json
import os
import pickle
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Final

from penstock.engine.hosting.shipping.interpreter import VARIABLE, check_here
from penstock.engine.hosting.spark.batch.batch_task import BatchTask
from penstock.engine.hosting.spark.batch.plan import Orders
from penstock.engine.hosting.spark.batch.runner import failure_of
from penstock.engine.hosting.spark.batch.shuffle_records import FRAME_PARTITION
from penstock.engine.model.messages import FailureInfo

_KEY: Final = struct.Struct("!q")
_BEGIN: Final = "---- Penstock: failure of a subtask ----"
_END: Final = "---- Penstock: end of failure"


class SubtaskFailed(Exception):
    """Carries a failure to the driver. Spark passes on only the text of an exception; `failure_in`
    finds the failure in it.
    """

    def __init__(self, failure: FailureInfo) -> None:
        note = json.dumps({"kind": failure.kind, "is_user_code": failure.is_user_code})
        super().__init__(f"\n{_BEGIN}\n{failure.text}\n{_END} {note}\n")


def run(
    orders: bytes,
    subtask: int,
    attempt: int,
    records: Iterator[bytes],
    send_to_driver: Callable[[bytes], None] | None,
) -> Iterator[bytes]:
    """See `spark_task.run_subtask`.

    `orders`: pickled by the driver, and authenticated by Spark. `send_to_driver`: takes the record for
    the driver; None: it is yielded with the others.
    """
    stage: Orders = pickle.loads(orders)
    for partition, record in _records(stage, subtask, attempt, records):
        if send_to_driver is not None and partition == stage.driver_partition:
            send_to_driver(record)
            continue
        yield _KEY.pack(partition)
        yield record


def frames(
    orders: bytes, subtask: int, attempt: int, records: Iterator[bytes], _send_to_driver: None
) -> Iterator[bytes]:
    """Yield the Arrow messages of the stage whose result becomes a DataFrame. Arguments: see `run`."""
    for partition, record in _records(pickle.loads(orders), subtask, attempt, records):
        if partition == FRAME_PARTITION:
            yield record


def _records(
    orders: Orders, subtask: int, attempt: int, records: Iterator[bytes]
) -> Iterator[tuple[int, bytes]]:
    os.environ[VARIABLE] = sys.executable
    try:
        check_here()
        yield from BatchTask(orders, subtask, attempt, records).run()
    except Exception as error:  # Any error: Spark must pass on our own text.
        where = f"  in task:     {orders.vertex_name} ({subtask + 1}/{orders.parallelism}), attempt {attempt}"
        raise SubtaskFailed(
            failure_of(error, where, is_full=orders.settings.shows_all_frames)
        ) from None


def failure_in(text: str) -> FailureInfo | None:
    """Find a subtask's failure in the text of Spark's error; None: no subtask failed."""
    begin = text.find(_BEGIN)
    end = text.find(_END, begin)
    if begin < 0 or end < 0:
        return None
    note, _ = json.JSONDecoder().raw_decode(text[end + len(_END) :].lstrip())
    return FailureInfo(note["kind"], text[begin + len(_BEGIN) : end].strip(), note["is_user_code"])
