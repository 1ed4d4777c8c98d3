"""What the sinks of a task prepared at the end of its data, if no checkpoint follows: the driver commits it when the job ends.

A savepoint that comes before holds it as state of the sinks, which commit it after a restore. Source: none; Flink's sinks commit at
the end of their data if the job takes no checkpoints, so that what a restart repeats is there twice.
"""

from __future__ import annotations

import zlib
from typing import Final

from penstock.engine.hosting.shipping.pickling import dumps_records, loads_records
from penstock.engine.model.checkpoints import InlineHandle, RedistributionMode, SubtaskState
from penstock.engine.model.messages import Committable
from penstock.engine.runtime.operators.sinks import COMMITTABLES
from penstock.engine.runtime.state.snapshot import ListPart, OperatorSnapshot
from penstock.engine.runtime.state.snapshot_writer import write_operator

_BEFORE_ALL: Final = 0
"""The checkpoint that they belong to: one that is complete, whatever is restored."""


class FinalOutput:
    """Of one task. Mailbox thread."""

    def __init__(self) -> None:
        self._prepared: dict[str, list[tuple[int, object]]] = {}
        self._committables: list[Committable] = []

    def add(self, node_id: int, uid: str, payload: object) -> None:
        """Add what the sink `uid` prepared. It is pickled here, so that an error of pickling names the sink."""
        self._committables.append(Committable(node_id, dumps_records(payload)))
        self._prepared.setdefault(uid, []).append((_BEFORE_ALL, payload))

    @property
    def committables(self) -> tuple[Committable, ...]:
        return tuple(self._committables)

    def state(self) -> SubtaskState | None:
        """Return the state of a task that has nothing left to do but to commit this; None: there is nothing to commit."""
        if not self._prepared:
            return None
        operators = []
        for uid, prepared in self._prepared.items():
            part = ListPart(RedistributionMode.SPLIT, list(prepared))
            snapshot = OperatorSnapshot(lists={COMMITTABLES: part}).freeze(dumps_records)
            operators.append((uid, write_operator(snapshot, _inline, dumps_records, loads_records)))
        return SubtaskState(tuple(operators), is_finished=True)


def _inline(data: bytes) -> InlineHandle:
    return InlineHandle(data, zlib.crc32(data))
