"""What holds a job's watermark: a split of a source, or the channel from a subtask.

Event times are compared with each other, not with the clock: a job that reads the past is not ill.

What the metrics of a job's subtasks say of its splits and watermarks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.engine.metrics.scopes import query_id
from penstock.engine.model.ids import VertexId
from penstock.ops.jobs.diagnosis.shares import live
from penstock.ops.jobs.diagnosis.words import lasting, moment_text, since_text, subtask_of
from penstock.ops.jobs.snapshots import JobSnapshot, VertexSnapshot
from penstock.ops.metrics.entities import SubtaskScope, TaskManagerScope
from penstock.ops.metrics.store import MetricStore

_WATERMARK: Final = "currentWatermark"
_SPLIT: Final = "split"
_OFFSET: Final = "currentOffset"
_PARTITION: Final = "partition"
USED: Final = "Status.JVM.Memory.Heap.Used"
MOST: Final = "Status.JVM.Memory.Heap.Max"
GARBAGE: Final = "Status.JVM.GarbageCollector.All.TimeMsPerSecond"
PROCESS: Final = (USED, MOST, GARBAGE)


class Figures:
    """What the metrics of subtasks say in addition to the counters of a job: of this one nothing is known.

    They are slower than a snapshot, so only asked where it matters.
    """

    def splits(self, vertex: VertexSnapshot, subtask: int) -> Mapping[str, int]:
        """Return the watermark of each split of a source. Empty: it has none, or has not reported."""
        return {}

    def watermark_out(self, vertex: VertexSnapshot, subtask: int) -> int | None:
        """Return the last watermark that the subtask sent; None: it has not reported."""
        return None

    def pending_records(self, vertex: VertexSnapshot) -> int:
        """Return how many records wait to be read by a source; 0 where its connector does not say it."""
        return 0

    def partitions(self, vertex: VertexSnapshot) -> int | None:
        """Return how many partitions a source reads, by the metrics of Flink's Kafka source; None: its connector does not say it."""
        return None

    def process(self, tm_id: str) -> Mapping[str, float]:
        """Return the figures that a TaskManager's process has reported, by the ids in `PROCESS`."""
        return {}


class StoredFigures(Figures):
    """Those of one job, read from a store. Valid while the store is lent."""

    def __init__(self, store: MetricStore, job_id: str) -> None:
        self._store = store
        self._job_id = job_id

    def splits(self, vertex: VertexSnapshot, subtask: int) -> Mapping[str, int]:
        if vertex.facts.inputs:
            return {}
        found = {}
        for one in self._store.measured(self._scope(vertex, subtask)):
            if one.name == _WATERMARK and one.groups and one.groups[0][0] == _SPLIT:
                split = one.groups[0][1]
                if split is not None and isinstance(one.value, int):
                    found[split] = one.value
        return found

    def watermark_out(self, vertex: VertexSnapshot, subtask: int) -> int | None:
        """Of the last operator of the chain."""
        if not vertex.facts.operators:
            return None
        name = query_id((), "currentOutputWatermark", vertex.facts.operators[-1].name)
        value = self._store.value(self._scope(vertex, subtask), name)
        return value if isinstance(value, int) else None

    def pending_records(self, vertex: VertexSnapshot) -> int:
        if vertex.facts.inputs or not vertex.facts.operators:
            return 0
        name = query_id((), "pendingRecords", vertex.facts.operators[0].name)
        values = (
            self._store.value(self._scope(vertex, one.subtask), name) for one in vertex.attempts
        )
        return sum(value for value in values if isinstance(value, int))

    def partitions(self, vertex: VertexSnapshot) -> int | None:
        if vertex.facts.inputs:
            return None
        found = {
            one.groups
            for attempt in vertex.attempts
            for one in self._store.measured(self._scope(vertex, attempt.subtask))
            if one.name == _OFFSET and one.groups and one.groups[-1][0] == _PARTITION
        }
        return len(found) or None

    def process(self, tm_id: str) -> Mapping[str, float]:
        scope = TaskManagerScope(tm_id)
        values = {one: self._store.value(scope, one) for one in PROCESS}
        return {one: value for one, value in values.items() if isinstance(value, int | float)}

    def _scope(self, vertex: VertexSnapshot, subtask: int) -> SubtaskScope:
        return SubtaskScope(self._job_id, vertex.facts.vertex_id, subtask)


NO_WATERMARK_MS: Final = -(2**63)
LAST_WATERMARK_MS: Final = 2**63 - 1
_HELD_MS: Final = 10_000
"""A split or channel that lags the furthest one by this much, in event time, may hold the watermark."""
_CATCHES_UP_MS: Final = 10_000
"""It does not if it comes within this time, by the clock, to where the furthest one is now: a job that reads the past is fast."""
_STANDS_MS: Final = 1_000
"""A watermark that has not moved for so long stands."""


def lag_of(watermark_ms: int, now_ms: int) -> int | None:
    """Return how far a watermark lags the clock; None: there is none yet, or it was the last one."""
    is_known = NO_WATERMARK_MS < watermark_ms < LAST_WATERMARK_MS
    return now_ms - watermark_ms if is_known else None


@dataclass(frozen=True, slots=True)
class Stand:
    """The lowest watermark of a vertex, which may be -2^63. `since_ms`: when it became that, in epoch ms. `speed`: milliseconds of event
    time in a millisecond, of late.
    """

    lowest_ms: int
    since_ms: int
    speed: float = 0.0


@dataclass(frozen=True, slots=True)
class Holder:
    """The subtask whose watermark is the lowest. `watermark_ms` -2^63: it has none yet.

    `is_held`: others are far ahead, the furthest by `ahead_ms` of event time; None: that one has no watermark at all.
    `split`: of a source; None: it has no splits, or they are not known. `consumer`: the vertex that waits.
    """

    vertex_id: VertexId
    name: str
    subtask: int
    watermark_ms: int
    split: str | None = None
    consumer: str | None = None
    ahead_ms: int | None = None
    is_held: bool = False
    since_ms: int | None = None

    def sentence(self, now_ms: int) -> str:
        who = subtask_of(self.subtask, self.name)
        if self.split is not None:
            who = f"split '{self.split}' of {who}"
        elif self.consumer is not None:
            who = f"the channel from {who} to '{self.consumer}'"
        since = since_text(now_ms, self.since_ms)
        if self.ahead_ms is None:
            state = "it has no watermark yet"
        else:
            state = (
                f"it stands at {moment_text(self.watermark_ms)}, {lasting(self.ahead_ms)} below "
                "the furthest"
            )
        return f"The watermark is held{since} by {who}: {state}."


def holder_of(
    job: JobSnapshot, stands: Mapping[VertexId, Stand], figures: Figures
) -> Holder | None:
    """Return what holds the watermark, or else the subtask with the lowest one. None: the job has no watermarks."""
    by_id = {one.facts.vertex_id: one for one in job.vertices}
    for vertex in job.vertices:
        stand = stands.get(vertex.facts.vertex_id)
        held = None if stand is None else _held(by_id, vertex, stand, figures)
        if held is not None and stand is not None and _is_ill(held, stand, job.now_ms):
            return held
    return _lowest(job, stands)


def _is_ill(held: Holder, stand: Stand, now_ms: int) -> bool:
    """Whether the rest of the job has to wait for it."""
    if now_ms - stand.since_ms >= _STANDS_MS:
        return True
    if held.ahead_ms is None or stand.speed <= 0.0:
        return False
    return held.ahead_ms / stand.speed >= _CATCHES_UP_MS


def _held(
    by_id: Mapping[VertexId, VertexSnapshot],
    consumer: VertexSnapshot,
    stand: Stand,
    figures: Figures,
) -> Holder | None:
    """The subtask or split whose watermark is far below those of the others that send watermarks to this vertex."""
    producers = [by_id[one.source] for one in consumer.facts.inputs]
    sent = [
        (watermark_ms, place, subtask)
        for place, vertex in enumerate(producers)
        for watermark_ms, _, subtask in sent_by(vertex, figures)
    ]
    own_ms = stand.lowest_ms
    holding = [one for one in sent if one[0] >= own_ms]  # Others are idle.
    if not holding:
        return None
    lowest_ms, place, subtask = min(holding)
    producer = producers[place]
    splits = figures.splits(producer, subtask)
    gap_ms = max(max(sent)[0], *splits.values(), lowest_ms) - lowest_ms
    if gap_ms < _HELD_MS:
        return None
    is_none = lowest_ms == NO_WATERMARK_MS
    facts = producer.facts
    return Holder(
        facts.vertex_id,
        facts.name,
        subtask,
        lowest_ms,
        split_that_holds(splits, lowest_ms),
        consumer.facts.name,
        None if is_none else gap_ms,
        is_held=True,
        since_ms=stand.since_ms,
    )


def sent_by(vertex: VertexSnapshot, figures: Figures) -> Iterator[tuple[int, int, int]]:
    """Yield (watermark, the same by the newest report, subtask).

    Counters of a source have the watermark that it makes; an operator of its chain may make a later one. Those of others have the one
    that they got. Counters come with each heartbeat, and what operators report comes later.
    """
    is_source = not vertex.facts.inputs
    for attempt, io in live(vertex):
        reported_ms = figures.watermark_out(vertex, attempt.subtask)
        if reported_ms is None:
            watermark_ms = io.watermark_ms
        else:
            watermark_ms = max(reported_ms, io.watermark_ms) if is_source else reported_ms
        if watermark_ms < LAST_WATERMARK_MS:
            yield watermark_ms, max(watermark_ms, io.watermark_ms), attempt.subtask


def split_that_holds(splits: Mapping[str, int], watermark_ms: int) -> str | None:
    """Return the split with the lowest watermark of those that are not idle: idle ones are passed over by their source."""
    found = [(at_ms, split) for split, at_ms in splits.items() if at_ms >= watermark_ms]
    return min(found)[1] if found else None


def lowest_watermark(vertex: VertexSnapshot) -> int | None:
    """Return the lowest watermark of a vertex, which may be -2^63; None: nothing has been reported, or it is the last one."""
    found = [io.watermark_ms for _, io in live(vertex) if io.watermark_ms < LAST_WATERMARK_MS]
    return min(found, default=None)


def _lowest(job: JobSnapshot, stands: Mapping[VertexId, Stand]) -> Holder | None:
    """Sources come first in a job, so among equals it is where the watermark comes from."""
    found: Sequence[tuple[int, int, int, VertexSnapshot]] = [
        (io.watermark_ms, place, attempt.subtask, vertex)
        for place, vertex in enumerate(job.vertices)
        for attempt, io in live(vertex)
        if NO_WATERMARK_MS < io.watermark_ms < LAST_WATERMARK_MS
    ]
    if not found:
        return None
    watermark_ms, _, subtask, vertex = min(found, key=lambda one: one[:3])
    vertex_id = vertex.facts.vertex_id
    stand = stands.get(vertex_id)
    since_ms = stand.since_ms if stand is not None and stand.lowest_ms == watermark_ms else None
    return Holder(vertex_id, vertex.facts.name, subtask, watermark_ms, since_ms=since_ms)
