"""Coordinators and task threads of sources and sinks, played by hand."""

from __future__ import annotations

from collections import deque

from penstock.engine.hosting.taskmanager.task.source_input import FetcherThread
from penstock.engine.runtime.elements import ColumnBatch
from penstock.engine.runtime.records.dead_letters import checked
from penstock.engine.runtime.sink import WriterContext
from penstock.engine.runtime.sources.contract import ReaderStatus, SplitBatch, SplitFinished


class FakeEnumeratorContext:
    def __init__(self, parallelism=1):
        self._parallelism = parallelism
        self.assigned = {subtask: [] for subtask in range(parallelism)}
        self.no_more = set()
        self.periodic = []

    def parallelism(self):
        return self._parallelism

    def registered_readers(self):
        return list(range(self._parallelism))

    def assign_splits(self, subtask, splits):
        self.assigned[subtask].extend(splits)

    def signal_no_more_splits(self, subtask):
        self.no_more.add(subtask)

    def call_periodically(self, period_ms, call):
        self.periodic.append((period_ms, call))


class FakeReaderContext:
    def __init__(self, subtask=0, parallelism=1):
        self._subtask = subtask
        self._parallelism = parallelism
        self.requests = 0
        self.events = deque()
        self.clock_ms = 0
        self.wake_ups = deque()

    def subtask(self):
        return self._subtask

    def parallelism(self):
        return self._parallelism

    def now_ms(self):
        return self.clock_ms

    def monotonic_ms(self):
        return self.clock_ms

    def takes_checkpoints(self):
        return True

    def send_split_request(self):
        self.requests += 1

    def send_source_event(self, event):
        self.events.append(event)

    def wake_at(self, monotonic_ms):
        self.wake_ups.append(monotonic_ms)

    def wake(self):
        self.wake_ups.append(self.clock_ms)

    def start_fetcher(self, split_reader):
        return FetcherThread(split_reader, lambda: None, "fetcher")


def run_source(source, parallelism=1, max_polls=100_000):
    """All batches of each subtask, the subtasks taking turns; checks the protocol on the way."""
    coordinator = FakeEnumeratorContext(parallelism)
    enumerator = source.create_enumerator(coordinator)
    enumerator.start()
    contexts = [FakeReaderContext(subtask, parallelism) for subtask in range(parallelism)]
    readers = [source.create_reader(context) for context in contexts]
    for subtask, reader in enumerate(readers):
        enumerator.add_reader(subtask)
        reader.start()
    batches = [[] for _ in range(parallelism)]
    is_over = [False] * parallelism
    for _ in range(max_polls):
        for subtask, reader in enumerate(readers):
            if not is_over[subtask]:
                serve(coordinator, enumerator, contexts[subtask], reader)
                is_over[subtask] = poll(reader, contexts[subtask], batches[subtask], coordinator)
        if all(is_over):
            for reader in readers:
                reader.close()
            enumerator.close()
            return batches
    raise AssertionError("the source does not end")


def serve(coordinator, enumerator, context, reader):
    while context.events:
        enumerator.handle_source_event(context.subtask(), context.events.popleft())
    while context.requests:
        context.requests -= 1
        enumerator.handle_split_request(context.subtask(), "localhost")
    splits = coordinator.assigned[context.subtask()]
    if splits:
        reader.add_splits(list(splits))
        splits.clear()
    if context.subtask() in coordinator.no_more:
        reader.notify_no_more_splits()


def poll(reader, context, batches, coordinator):
    polled = reader.poll_next()
    if polled is ReaderStatus.END_OF_INPUT:
        assert context.subtask() in coordinator.no_more, (
            "END_OF_INPUT before the last split was known"
        )
        return True
    if isinstance(polled, SplitBatch):
        assert len(polled.batch), "an empty batch"
        batches.append(checked(polled.batch))
    elif polled is ReaderStatus.NOTHING_AVAILABLE:
        context.clock_ms = context.wake_ups.popleft() if context.wake_ups else context.clock_ms
    else:
        assert isinstance(polled, SplitFinished)
    return False


def all_values(batches):
    """The values of all batches of all subtasks, in the order in which each subtask gave them."""
    return [value for subtask in batches for batch in subtask for value in values(batch)]


def values(batch):
    return batch.data.to_pylist() if isinstance(batch, ColumnBatch) else batch.values


def writer_context(subtask=0, attempt=0, job="job-1.", input_type=None, parallelism=1):
    return WriterContext(
        subtask=subtask,
        parallelism=parallelism,
        attempt=attempt,
        job_prefix=job,
        attempt_prefix=f"{job}v.{subtask}.{attempt}",
        input_type=input_type,
    )
