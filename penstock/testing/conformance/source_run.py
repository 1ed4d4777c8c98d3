"""One deployment of a source, driven by hand: the driver's real coordinator, and readers in this thread.

Fetchers have their own threads, as in a job. Knows nothing of what is expected. Source: Flink SourceTestSuiteBase,
SourceCoordinator.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import count, islice
from typing import Any, Final

from penstock.connectors.api.base import (
    Boundedness,
    ColumnBatch,
    GeneratorSource,
    ReaderStatus,
    Source,
    SourceReader,
    SplitBatch,
    SplitReader,
)
from penstock.engine.hosting.jobmanager.coordinators.source_coordinator import (
    CoordinatedVertex,
    SourceCoordinator,
)
from penstock.engine.hosting.shipping.pickling import deserialize, serialize
from penstock.engine.hosting.taskmanager.task.source_input import FetcherThread
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, VertexId
from penstock.engine.model.messages import AddSplits, NoMoreSplits, SourceEvent, SplitRequest
from penstock.engine.runtime.codecs.by_type import codec_of
from penstock.engine.runtime.codecs.convert import to_rows
from penstock.engine.runtime.records.dead_letters import checked

_VERTEX: Final = VertexId("0" * 32)
_NODE: Final = 1
LOOK_S: Final = 0.01
_BATCH_ROWS: Final = 2


class ProtocolBroken(AssertionError):
    """The source does what its contract rules out."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint. `readers`: the pickled splits of each subtask."""

    checkpoint_id: int
    enumerator: bytes
    readers: tuple[tuple[bytes, ...], ...]


@dataclass(slots=True)
class _Subtask:
    """A reader's attempt. `records`: what it gave. `places`: the place of each among those of all subtasks.
    `covered`: how many of them a checkpoint covers, by its id.
    """

    attempt: AttemptId
    reader: SourceReader
    mails: deque[object] = field(default_factory=deque)
    records: list[Any] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    covered: dict[int, int] = field(default_factory=dict)
    has_ended: bool = False
    may_end: bool = False


class SourceRun:
    """Readers take turns, a batch each. `patience_s`: the longest time to wait for a record that is expected."""

    def __init__(
        self,
        source: Source,
        parallelism: int,
        kept: Kept | None = None,
        patience_s: float = 10.0,
        *,
        cuts_batches: bool = False,
    ) -> None:
        """`kept`: the checkpoint to begin with; its splits are spread over the subtasks, as in a rescale. `cuts_batches`: a
        generator's are small, since else all records of a test are one batch, and nothing fails inside the batch.
        """
        self._source: Source = deserialize(serialize(source))
        if cuts_batches and isinstance(self._source, GeneratorSource):
            with contextlib.suppress(AttributeError):  # It has no room for attributes.
                object.__setattr__(self._source, "batch_rows", _BATCH_ROWS)
        self._patience_s = patience_s
        self._has_news = threading.Event()
        self._periodic: list[tuple[Callable[[], None], Callable[[], bool]]] = []
        self._former: list[Any] = []
        self._places = count()
        self._requests: list[Any] = []
        self.batches = 0
        place = CoordinatedVertex(_VERTEX, _NODE, "source", parallelism, source)
        self._coordinator = SourceCoordinator(place, self._source, self)
        self._coordinator.restore(None if kept is None else kept.enumerator)
        splits = [one for reader in kept.readers for one in reader] if kept is not None else []
        self._subtasks: list[_Subtask] = []
        for subtask in range(parallelism):
            self._subtasks.append(self._begin(subtask, 0, splits[subtask::parallelism]))

    # ------------------------------------------------------------------ what a test does

    @property
    def records(self) -> list[Any]:
        """All records that count, as they came: what a failed attempt gave after its checkpoint does not."""
        by_place = merge(*(zip(one.places, one.records, strict=True) for one in self._subtasks))
        return [*self._former, *(record for _, record in by_place)]

    def read(self, *, batches: int | None = None, records: int | None = None) -> None:
        """Read until `batches` further batches or `records` in all have come, or the source has ended."""
        wanted = None if batches is None else self.batches + batches
        deadline_s = time.monotonic() + self._patience_s
        while not self._is_enough(wanted, records):
            before = self.batches
            self._has_news.clear()
            ended = [self._poll(one) for one in self._subtasks]
            if all(ended):
                return
            if self.batches > before:
                deadline_s = time.monotonic() + self._patience_s
                continue
            if time.monotonic() > deadline_s:
                return
            self._wait()

    def look_on(self, rounds: int = 5) -> None:
        """Read what comes although nothing is expected any more."""
        for _ in range(rounds):
            for one in self._subtasks:
                self._poll(one)
            self._wait()

    def checkpoint(self, checkpoint_id: int) -> Kept:
        for one in self._subtasks:
            self._deliver(one)
        enumerator = self._coordinator.snapshot(checkpoint_id)
        readers = []
        for one in self._subtasks:
            one.reader.before_checkpoint(checkpoint_id)
            readers.append(tuple(serialize(split) for split in one.reader.snapshot_state()))
            one.covered[checkpoint_id] = len(one.records)
        return Kept(checkpoint_id, enumerator, tuple(readers))

    def complete(self, checkpoint_id: int) -> None:
        self._coordinator.complete(checkpoint_id)
        for one in self._subtasks:
            one.reader.notify_checkpoint_complete(checkpoint_id)

    def fail(self, subtask: int, kept: Kept | None) -> None:
        """One subtask begins again with the checkpoint; splits that it was given since go back."""
        failed = self._subtasks[subtask]
        failed.reader.close()
        covered = 0 if kept is None else failed.covered[kept.checkpoint_id]
        self._former += failed.records[:covered]
        self._coordinator.give_back([subtask], None if kept is None else kept.checkpoint_id)
        splits = kept.readers[subtask] if kept is not None else ()
        self._subtasks[subtask] = self._begin(subtask, failed.attempt.attempt + 1, splits)

    def close(self) -> None:
        for one in self._subtasks:
            one.reader.close()
        self._coordinator.close()

    # ------------------------------------------------------------------ Surroundings of the coordinator

    def send_to_task(self, attempt_id: AttemptId, message: object) -> None:
        for one in self._subtasks:
            if one.attempt == attempt_id:
                one.mails.append(message)

    def group_of(self, alignment: object) -> Any:
        raise NotImplementedError(f"the kit has no watermark alignment, got {alignment}")

    def call_periodically(
        self, name: str, period_ms: int, call: Callable[[], None], is_wanted: Callable[[], bool]
    ) -> None:
        self._periodic.append((call, is_wanted))

    # ------------------------------------------------------------------ inside

    def _begin(self, subtask: int, attempt: int, splits: Sequence[bytes]) -> _Subtask:
        attempt_id = AttemptId(ExecutionVertexId(_VERTEX, subtask), attempt)
        context = _Reader(self, attempt_id)
        made = _Subtask(attempt_id, self._source.create_reader(context))
        if splits:
            made.reader.add_splits([deserialize(one) for one in splits])
        made.reader.start()
        return made

    def _is_enough(self, batches: int | None, records: int | None) -> bool:
        if batches is not None and self.batches >= batches:
            return True
        found = len(self._former) + sum(len(one.records) for one in self._subtasks)
        return records is not None and found >= records

    def _wait(self) -> None:
        self._has_news.wait(LOOK_S)
        for call, is_wanted in self._periodic:
            if is_wanted():
                call()

    def _poll(self, one: _Subtask) -> bool:
        """One turn. Returns whether the reader has ended.

        What it asks for comes after its turn: in a job a reader waits for its splits.
        """
        if one.has_ended:
            return True
        polled = one.reader.poll_next()
        self._deliver(one)
        if polled is ReaderStatus.END_OF_INPUT:
            if not one.may_end:
                raise ProtocolBroken("END_OF_INPUT came before notify_no_more_splits")
            one.has_ended = True
        elif isinstance(polled, SplitBatch):
            batch = checked(polled.batch)
            if not len(batch):
                raise ProtocolBroken("poll_next returned an empty batch")
            if isinstance(batch, ColumnBatch):
                batch = to_rows(batch, self._source.produced_type)
            else:
                codec_of(self._source.produced_type).enforce(batch.values)  # As in a job.
            one.records += batch.values
            one.places += islice(self._places, len(batch.values))
            self.batches += 1
        return one.has_ended

    def _deliver(self, one: _Subtask) -> None:
        """What the reader has asked for goes to the coordinator, and what that has sent to the reader."""
        for message in self.taken(one.attempt):
            if isinstance(message, SplitRequest):
                self._coordinator.handle_request(message)
            else:
                self._coordinator.handle_event(message)
            self._has_news.set()
        while one.mails:
            mail = one.mails.popleft()
            if isinstance(mail, AddSplits):
                one.reader.add_splits(deserialize(mail.splits))
            elif isinstance(mail, NoMoreSplits):
                one.may_end = True
                one.reader.notify_no_more_splits()

    def ask(self, message: Any) -> None:
        self._requests.append(message)

    def taken(self, attempt: AttemptId) -> list[Any]:
        mine = [one for one in self._requests if one.attempt_id == attempt]
        self._requests = [one for one in self._requests if one.attempt_id != attempt]
        return mine

    def wake(self) -> None:
        self._has_news.set()

    @property
    def boundedness(self) -> Boundedness:
        return self._source.boundedness

    @property
    def parallelism(self) -> int:
        return self._coordinator.place.parallelism


class _Reader:
    """`ReaderContext` of one attempt."""

    def __init__(self, run: SourceRun, attempt: AttemptId) -> None:
        self._run = run
        self._attempt = attempt

    def subtask(self) -> int:
        return self._attempt.subtask

    def parallelism(self) -> int:
        return self._run.parallelism

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def monotonic_ms(self) -> int:
        return int(time.monotonic() * 1000)

    def takes_checkpoints(self) -> bool:
        return True

    def send_split_request(self) -> None:
        self._run.ask(SplitRequest(self._attempt, _NODE, "localhost"))

    def send_source_event(self, event: object) -> None:
        self._run.ask(SourceEvent(self._attempt, _NODE, deserialize(serialize(event))))

    def wake_at(self, monotonic_ms: int) -> None:
        """The reader is polled all the time."""

    def wake(self) -> None:
        self._run.wake()

    def start_fetcher(self, split_reader: SplitReader) -> FetcherThread:
        return FetcherThread(split_reader, self._run.wake, f"fetcher-{self._attempt.subtask}")
