"""Small sinks. Source: Flink DiscardingSink.

A sink of one's own needs three methods:

    class Lines(Sink):
        def create_writer(self, context):   # on a TaskManager, once per subtask
            return LinesWriter(context)     # write(batch, watermark_ms), prepare_commit(), close()

        def create_committer(self):         # leave it out when writers need none
            return LinesCommitter()         # commit(committables), abort(job_prefix)

Commits run in the driver at the job's end, and with checkpoints in the subtasks when one completes: they must be
idempotent. A writer may have prepare_checkpoint(checkpoint_id), which then takes the place of prepare_commit().
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.datastream.connectors.base import Accepts, Sink, SinkWriter, WriterContext
from penstock.runtime.elements import Batch


class DiscardingSink(Sink):
    """Drops everything: for measuring what comes before."""

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
