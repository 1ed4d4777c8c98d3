"""One source on the driver: its enumerator, its readers, and which splits each reader was given. On
the coordinators' thread only.

Knows no thread and no wire. Source: Flink SourceCoordinator, SourceCoordinatorContext
(docs/spec/sources-and-sinks.md#sources).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from penstock.engine.hosting.shipping.main_classes import unreadable_state
from penstock.engine.hosting.shipping.pickling import loads_state, serialize
from penstock.engine.machines.sources import (
    NO_CHECKPOINT,
    SplitAssignmentTracker,
    WatermarkAlignment,
)
from penstock.engine.model import messages
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.ids import AttemptId, VertexId
from penstock.engine.model.metrics import Groups, Measured, MetricType
from penstock.engine.runtime.sources.contract import EnumeratorContext, Source, SplitEnumerator
from penstock.engine.runtime.watermarks.strategy import AlignmentParams

_LOG: Final = logging.getLogger(__name__)
_ENUMERATOR: Final[Groups] = (("coordinator", None), ("enumerator", None))


@dataclass(frozen=True, slots=True)
class CoordinatedVertex:
    """A job vertex, and the coordinator that the program gave its operator `node_id`. `uid`: of that operator."""

    vertex_id: VertexId
    node_id: int
    name: str
    parallelism: int
    coordinator: object
    alignment: AlignmentParams | None = None
    uid: str = ""


class Surroundings(Protocol):
    """What a source coordinator needs from the other coordinators and from the driver."""

    def send_to_task(self, attempt_id: AttemptId, message: object) -> None: ...
    def group_of(self, alignment: AlignmentParams) -> WatermarkAlignment: ...
    def call_periodically(
        self, name: str, period_ms: int, call: Callable[[], None], is_wanted: Callable[[], bool]
    ) -> None:
        """Call on the coordinators' thread while `is_wanted` returns true."""


class SourceCoordinator:
    """`enumerator` None: not started yet, or closed. `readers`: the attempt of each subtask."""

    def __init__(self, place: CoordinatedVertex, source: Source, around: Surroundings) -> None:
        self.place = place
        self.enumerator: SplitEnumerator | None = None
        self.readers: dict[int, AttemptId] = {}
        self._source = source
        self._around = around
        self._has_signalled_end: set[int] = set()
        self._past: dict[int, int] = {}
        self._assigned = SplitAssignmentTracker()
        self._context: _EnumeratorContext | None = None
        self._is_announcing = False

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Start the enumerator, unless it was restored already."""
        if self.enumerator is None:
            self._begin(self._source.create_enumerator)

    def restore(self, state: bytes | None) -> None:
        """Replace the enumerator by one restored from its state; None: by a new one. Closes the old one.

        Raises: UserError: the state cannot be unpickled. What the source raises.
        """
        self.close()
        self._assigned = SplitAssignmentTracker()
        if state is None:
            self._begin(self._source.create_enumerator)
        else:
            try:
                found = loads_state(state)
            except Exception as error:  # Classes of users may raise anything.
                what = f"the state of the enumerator of '{self.place.name}'"
                raise unreadable_state(what, error) from error
            self._begin(lambda context: self._source.restore_enumerator(context, found))

    def rescale(self, parallelism: int) -> None:
        """Another generation of readers comes. The old ones are forgotten; what they still say is from past attempts."""
        self.close()
        self.place = replace(self.place, parallelism=parallelism)

    def close(self) -> None:
        """Close the enumerator. Never raises; its errors are logged."""
        enumerator, self.enumerator = self.enumerator, None
        if self._context is not None:
            self._context.is_current = False
        for subtask in list(self.readers):
            self._forget(subtask)
        if enumerator is not None:
            try:
                enumerator.close()
            except Exception:
                _LOG.exception("source=%s enumerator did not close", self.place.name)

    def _begin(self, make: Callable[[EnumeratorContext], SplitEnumerator]) -> None:
        self._context = _EnumeratorContext(self)
        self.enumerator = make(self._context)
        self.enumerator.start()
        alignment = self.place.alignment
        if alignment is not None and not self._is_announcing:
            self._is_announcing = True
            self._around.call_periodically(
                self.place.name, alignment.update_interval_ms, self._announce, lambda: True
            )

    def measured(self) -> list[Measured]:
        """The enumerator's metrics. Any thread."""
        enumerator = self.enumerator
        waiting = None if enumerator is None else enumerator.unassigned_splits()
        if waiting is None:
            return []
        return [Measured("unassignedSplits", MetricType.GAUGE, waiting, _ENUMERATOR)]

    # ------------------------------------------------------------------ readers

    def handle_request(self, request: messages.SplitRequest) -> None:
        if self.enumerator is None:
            return
        subtask = request.attempt_id.subtask
        self._register(request.attempt_id)
        # A reader that was notified that there are no more splits may have ended: it would never
        # read a split that came back meanwhile.
        if subtask not in self._has_signalled_end:
            self.enumerator.handle_split_request(subtask, request.host)

    def handle_event(self, message: messages.SourceEvent) -> None:
        if self.enumerator is not None:
            self._register(message.attempt_id)
            self.enumerator.handle_source_event(message.attempt_id.subtask, message.event)

    def note_watermark(self, report: messages.ReportedWatermark) -> None:
        """Note a reader's watermark. A reader that was restored with splits may report before it asks for any."""
        alignment = self.place.alignment
        is_past = report.attempt_id.attempt <= self._past.get(report.attempt_id.subtask, -1)
        if self.enumerator is not None and alignment is not None and not is_past:
            self._register(report.attempt_id)
            place = (self.place.node_id, report.attempt_id.subtask)
            self._around.group_of(alignment).report(place, report.watermark_ms)

    def _register(self, attempt_id: AttemptId) -> None:
        assert self.enumerator is not None
        if self.readers.get(attempt_id.subtask) != attempt_id:
            self.readers[attempt_id.subtask] = attempt_id
            self.enumerator.add_reader(attempt_id.subtask)

    def give_back(self, subtasks: Sequence[int], checkpoint_id: int | None) -> None:
        """These subtasks begin again with the checkpoint. It contains the splits that they were
        given before it; later ones go back.
        """
        if self.enumerator is None:
            return
        for subtask in subtasks:
            self._forget(subtask)
        for subtask in subtasks:
            since = NO_CHECKPOINT if checkpoint_id is None else checkpoint_id
            splits = self._assigned.reset(subtask, since)
            if splits:
                self.enumerator.add_splits_back(splits, subtask)

    def _forget(self, subtask: int) -> None:
        former = self.readers.pop(subtask, None)
        self._has_signalled_end.discard(subtask)
        if former is not None:
            self._past[subtask] = former.attempt
        if self.place.alignment is not None:
            group = self._around.group_of(self.place.alignment)
            group.forget((self.place.node_id, subtask))

    def _announce(self) -> None:
        alignment = self.place.alignment
        assert alignment is not None
        allowed_ms = self._around.group_of(alignment).max_allowed_ms(alignment.max_drift_ms)
        if allowed_ms is None:
            return
        for attempt_id in self.readers.values():
            message = messages.MaxAllowedWatermark(attempt_id, self.place.node_id, allowed_ms)
            self._around.send_to_task(attempt_id, message)

    # ------------------------------------------------------------------ checkpoints

    def snapshot(self, checkpoint_id: int) -> bytes:
        """Return the enumerator's state. Splits that it assigns later are not part of this
        checkpoint.

        Raises: ExternalError: there is no enumerator. What the enumerator raises, or what pickling
        its state raises.
        """
        if self.enumerator is None:
            raise ExternalError(f"the enumerator of '{self.place.name}' is not running")
        state = serialize(self.enumerator.snapshot_state())
        self._assigned.checkpoint(checkpoint_id)
        return state

    def complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete: splits that were assigned before it never come back."""
        self._assigned.complete(checkpoint_id)

    # ------------------------------------------------------------------ what the enumerator asks for

    def assign(self, subtask: int, splits: Sequence[Any]) -> None:
        attempt_id = self.readers.get(subtask)
        if attempt_id is None or not splits:
            return
        self._assigned.assign(subtask, splits)
        message = messages.AddSplits(attempt_id, self.place.node_id, serialize(list(splits)))
        self._around.send_to_task(attempt_id, message)

    def no_more_splits(self, subtask: int) -> None:
        attempt_id = self.readers.get(subtask)
        if attempt_id is not None:
            self._has_signalled_end.add(subtask)
            self._around.send_to_task(
                attempt_id, messages.NoMoreSplits(attempt_id, self.place.node_id)
            )

    def call_periodically(
        self, period_ms: int, call: Callable[[], None], is_wanted: Callable[[], bool]
    ) -> None:
        self._around.call_periodically(self.place.name, period_ms, call, is_wanted)


class _EnumeratorContext:
    """`engine.runtime.sources.contract.EnumeratorContext` of one enumerator. Calls of a replaced enumerator are ignored."""

    def __init__(self, coordinator: SourceCoordinator) -> None:
        self.is_current = True
        self._coordinator = coordinator

    def parallelism(self) -> int:
        return self._coordinator.place.parallelism

    def registered_readers(self) -> Sequence[int]:
        return sorted(self._coordinator.readers)

    def assign_splits(self, subtask: int, splits: Sequence[Any]) -> None:
        if self.is_current:
            self._coordinator.assign(subtask, splits)

    def signal_no_more_splits(self, subtask: int) -> None:
        if self.is_current:
            self._coordinator.no_more_splits(subtask)

    def call_periodically(self, period_ms: int, call: Callable[[], None]) -> None:
        def call_if_current() -> None:
            if self.is_current:
                call()

        if self.is_current:
            self._coordinator.call_periodically(period_ms, call_if_current, lambda: self.is_current)
