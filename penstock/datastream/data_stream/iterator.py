"""CloseableIterator: the results of a running job, on the client. Knows only the JobControl port.

Source: pyflink.datastream.data_stream.CloseableIterator; differs: close() before the end cancels the job, so that no
job keeps running without a reader.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import weakref
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Generic, Self

from penstock.common.job_client import JobClient, result_of
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.data_stream.client_values import client_values
from penstock.datastream.functions.type_variables import T
from penstock.engine.model.errors import JobExecutionError
from penstock.engine.model.program import JobControl


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
