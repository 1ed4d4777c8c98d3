"""Small sinks. Source: Flink DiscardingSink.

A sink of your own needs three methods:

    class Lines(Sink):
        def create_writer(self, context):   # on a TaskManager, once per subtask
            return LinesWriter(context)     # write(batch, watermark_ms), prepare_commit(), close()

        def create_committer(self):         # leave it out when writers need none
            return LinesCommitter()         # commit(committables), abort(job_prefix)

Commits run in the driver at the job's end or, with checkpoints, in the subtasks when one completes. They must be
idempotent. If a writer has prepare_checkpoint(checkpoint_id), it is called instead of prepare_commit().
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from penstock.connectors.api.base import Accepts, Sink, SinkWriter, WriterContext
from penstock.engine.model.errors import PenstockError
from penstock.engine.model.program import JobControl
from penstock.engine.runtime.elements import Batch


class DiscardingSink(Sink):
    """Drops all records, for example to measure the operators before it."""

    accepts = Accepts.ANY

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _Discard()


class _Discard:
    def write(self, batch: Batch, watermark_ms: int) -> None:
        return

    def prepare_commit(self) -> Sequence[object]:
        return ()

    def close(self) -> None:
        return


class CollectingSink(Sink):
    """Keeps records in a list of the driver: `sink.values` after `env.execute()`. For tests.

    One sink may take several streams and jobs. As with `execute_and_collect`, records that were handed over are not
    taken back, so a job that restarts without checkpoints fails.
    """

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._reading: list[tuple[JobControl, threading.Thread]] = []

    @property
    def values(self) -> list[Any]:
        """The records so far; for jobs that have ended, all of their records."""
        for control, thread in list(self._reading):
            if control.status().is_terminal:
                thread.join()
        return list(self._values)

    def clear(self) -> None:
        """Forget the records so far."""
        self._values.clear()

    def read_from(
        self, control: JobControl, stream: str, values: Callable[[list[Any]], list[Any]]
    ) -> None:
        """Takes the records of a running job as they come. `values`: turns a batch into the client's values."""
        thread = threading.Thread(
            target=self._read,
            args=(control, stream, values),
            name="penstock-collecting-sink",
            daemon=True,
        )
        self._reading.append((control, thread))
        thread.start()

    def _read(
        self, control: JobControl, stream: str, values: Callable[[list[Any]], list[Any]]
    ) -> None:
        with contextlib.suppress(PenstockError):  # execute() raises the job's failure
            for batch in control.collect(stream, shows_error=False):
                self._values += values(batch)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        raise AssertionError(
            "the records of a CollectingSink go to the driver: see DataStream.sink_to"
        )
