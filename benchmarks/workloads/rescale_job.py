"""The job of `rescale`: what its TaskManagers load, and nothing else."""

import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.common import Types
from penstock.datastream import KeyedProcessFunction, RuntimeContext
from penstock.datastream.connectors import Sink, WriterContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.engine.runtime.elements import Batch

BYTES_OF_A_KEY = 4000
NUMBERS = 3
"""In the file of an attempt: when it wrote first, when last (ns), and how many records."""


def key_of(number: int) -> int:
    return number


class Hoard(KeyedProcessFunction):
    """Keeps some kilobytes for each key, and passes the key on."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("bytes", Types.PICKLED_BYTE_ARRAY())
        self.kept = runtime_context.get_state(descriptor)

    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        if self.kept.value() is None:
            self.kept.update(os.urandom(BYTES_OF_A_KEY))
        yield value


class TimelineSink(Sink):
    """Leaves in a file of `folder` for each attempt when it wrote first and last, and how many records."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def create_writer(self, context: WriterContext) -> Any:
        return _Timeline(f"{self._folder}/{context.subtask}-{context.attempt}")


class _Timeline:
    def __init__(self, place: str) -> None:
        self._place = place
        self._file: int | None = None
        self._first_ns = 0
        self._records = 0

    def write(self, batch: Batch, watermark_ms: int) -> None:
        now_ns = time.monotonic_ns()  # All processes of one machine share it.
        if self._file is None:
            self._file = os.open(self._place, os.O_CREAT | os.O_RDWR, 0o600)
            self._first_ns = now_ns
        self._records += len(batch)
        told = (self._first_ns, now_ns, self._records)
        os.pwrite(self._file, b"".join(one.to_bytes(8, "big") for one in told), 0)

    def prepare_commit(self) -> Sequence[object]:
        return []

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
