"""CloseableIterator: the results of a running job, on the client. Knows only the JobControl port.

Source: pyflink.datastream.data_stream.CloseableIterator; differs: close() before the end cancels the job, so that no
job keeps running without a reader.

Conversion of collected values to the values that the client gets. Does not know any job.

Source: PyFlink's PythonBridgeUtils and pickled_bytes_to_python_converter: the client gets a FLOAT by its Java text,
1.1, while Python functions get its exact value, 1.100000023841858.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeAlias

import numpy as np

from penstock.common.job_client import JobClient, result_of
from penstock.datastream.functions.type_variables import T
from penstock.engine.model.errors import JobExecutionError
from penstock.engine.model.program import JobControl
from penstock.engine.model.row import make_row
from penstock.engine.model.types import (
    BasicType,
    BasicTypeInfo,
    ElementTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

Change: TypeAlias = Callable[[Any], Any]


def client_values(type_info: TypeInformation | None) -> Callable[[list[Any]], list[Any]]:
    """A function that converts values of this type for the client. It returns the same list if the type has no FLOAT."""
    change = _change(type_info)
    return _same if change is None else lambda values: list(map(change, values))


def _same(values: list[Any]) -> list[Any]:
    return values


def _change(type_info: TypeInformation | None) -> Change | None:
    """A function that converts one value; None: there is nothing to convert."""
    change: Change | None = None
    if isinstance(type_info, BasicTypeInfo):
        change = _shortest if type_info.basic_type is BasicType.FLOAT else None
    elif isinstance(type_info, RowTypeInfo | TupleTypeInfo):
        fields = [_change(one) for one in type_info.get_field_types()]
        change = _of_record(fields) if any(fields) else None
    elif isinstance(type_info, MapTypeInfo):
        change = _of_map(_change(type_info.key_type), _change(type_info.value_type))
    elif isinstance(type_info, ElementTypeInfo):
        change = _of_list(_change(type_info.element_type))
    return None if change is None else lambda value: None if value is None else change(value)


def _shortest(value: float) -> float:
    """The number with the fewest digits that is the same 32-bit float."""
    return float(str(np.float32(value)))


def _of_record(fields: Sequence[Change | None]) -> Change:
    def changed(record: Any) -> Any:
        values = [
            value if field is None else field(value)
            for field, value in zip(fields, record, strict=True)
        ]
        if isinstance(record, tuple):
            return tuple(values)
        return make_row(record._fields, values, record.get_row_kind())

    return changed


def _of_list(element: Change | None) -> Change | None:
    return None if element is None else lambda values: list(map(element, values))


def _of_map(key: Change | None, value: Change | None) -> Change | None:
    if key is None and value is None:
        return None
    of_key, of_value = key or _itself, value or _itself
    return lambda pairs: {of_key(one): of_value(other) for one, other in pairs.items()}


def _itself(value: Any) -> Any:
    return value


class CloseableIterator(Generic[T]):
    """Iterates over the results of a running job; use it in `with`.

    Without `with`, the job is cancelled when nobody holds the iterator any more, because nobody can read its results then. Ctrl-C, or
    an interrupt of a notebook's kernel, that comes within the iterator cancels the job too; with `with`, wherever the
    program is in the block.

    Raises:
        JobExecutionError: from the iteration, when the job fails; its subclass JobCancelledError when it is cancelled.
    """

    def __init__(
        self, control: JobControl, stream: str, type_info: TypeInformation | None = None
    ) -> None:
        self._control = control
        self._batches: Iterator[Iterable[T]] = map(
            client_values(type_info), control.collect(stream)
        )
        self._values: Iterator[T] = iter(())
        self._is_exhausted = False
        self._is_closed = False
        _start_reaper()
        self._letting_go = weakref.finalize(self, _ABANDONED.put, control)
        self._letting_go.atexit = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            while not self._is_exhausted:
                for value in self._values:
                    return value
                batch = None if self._is_closed else self._next_batch()
                if batch is None:
                    self._finish()
                else:
                    self._values = iter(batch)
        except KeyboardInterrupt:
            self._interrupted()
            raise
        raise StopIteration

    def _next_batch(self) -> Iterable[T] | None:
        with contextlib.suppress(
            JobExecutionError
        ):  # `_finish` raises the error that fits the job's end.
            return next(self._batches, None)
        return None

    def next(self) -> T:
        """Return the next record. Raises StopIteration at the end."""
        return next(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(exc_value, KeyboardInterrupt):
            self._interrupted()
        self.close()

    def close(self) -> None:
        """Cancel the job if it is still running, and wait until it has ended."""
        if self._is_closed:
            return
        self._stop_reading()
        if not self._control.status().is_terminal:
            self._control.cancel()
            self._control.wait()
        self._is_exhausted = True

    def _stop_reading(self) -> None:
        self._is_closed = True
        self._values = iter(())
        # Nobody reads on: an error that was not read is shown on the console.
        self._batches = iter(())

    def get_job_client(self) -> JobClient:
        """Return the client of the running job, which then does not end with this iterator. Not in PyFlink."""
        self._letting_go.detach()
        return JobClient(self._control)

    def _interrupted(self) -> None:
        """Ctrl-C. The second one waits for nothing, even where it comes before anything waits for the end of the job."""
        if self._is_closed:
            return
        try:
            if self._control.status().is_terminal or self._control.interrupted():
                self.close()
        except KeyboardInterrupt:
            # It is the second one, or the first one that gets so far.
            self._control.interrupted()
            raise
        finally:
            self._stop_reading()

    def _finish(self) -> None:
        self._is_exhausted = True
        if not self._is_closed:
            self._is_closed = True
            result_of(self._control.job_id, self._control.wait())


_ABANDONED: Final[queue.SimpleQueue[JobControl]] = queue.SimpleQueue()
"""Jobs whose iterators are gone. Python's collector may run within any call, so what it calls may wait for no lock."""


@functools.cache
def _start_reaper() -> None:
    threading.Thread(target=_cancel_abandoned, name="penstock-reaper", daemon=True).start()


def _cancel_abandoned() -> None:
    """Cancel abandoned jobs. A session that does not answer ends the job itself, when it hears no more of its client."""
    while True:
        control = _ABANDONED.get()
        # Nobody waits for it. At the session's address another driver may answer by now.
        with contextlib.suppress(Exception):
            if not control.status().is_terminal:
                control.cancel()
        del control


def take(iterator: CloseableIterator[T], limit: int) -> list[T]:
    """Return the first `limit` values; the job is cancelled when there are more."""
    values: list[T] = []
    with iterator:
        while len(values) < limit:
            try:
                values.append(next(iterator))
            except StopIteration:
                break
    return values
