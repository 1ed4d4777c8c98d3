"""A reader that blocks on a thread of its own, with its coordinator and its task, played by hand."""

import threading

from penstock.engine.hosting.taskmanager.task.source_input import FetcherThread
from penstock.engine.runtime.records.dead_letters import checked
from penstock.engine.runtime.sources.contract import ReaderStatus, SplitBatch
from tests.tools.connectors.played_by_hand import (
    FakeEnumeratorContext,
    FakeReaderContext,
    serve,
    values,
)

WAIT_S = 30


class Task(FakeReaderContext):
    """One reader and its coordinator; waits until the reader's thread has something."""

    def __init__(self, source, subtask=0, parallelism=1, enumerator=None):
        super().__init__(subtask, parallelism)
        self.has_news = threading.Event()
        self.coordinator = FakeEnumeratorContext(parallelism)
        self.enumerator = enumerator or source.create_enumerator(self.coordinator)
        self.enumerator.start()
        self.reader = source.create_reader(self)
        self.reader.start()
        self.batches = []
        self.fetcher = None

    def start_fetcher(self, split_reader):
        self.fetcher = FetcherThread(split_reader, self.has_news.set, "fetcher")
        return self.fetcher

    def read(self, count):
        """Until so many records came; they are what is returned."""
        while sum(map(len, self.batches)) < count:
            assert not self.poll(), "the source ended"
        return self.values()

    def read_to_end(self):
        while not self.poll():
            pass
        self.close()
        return self.values()

    def values(self):
        return [value for batch in self.batches for value in values(batch)]

    def poll_once(self):
        """Without waiting for anything."""
        serve(self.coordinator, self.enumerator, self, self.reader)
        self.reader.poll_next()

    def poll(self):
        """Whether the source has ended."""
        self.has_news.clear()
        serve(self.coordinator, self.enumerator, self, self.reader)
        polled = self.reader.poll_next()
        if polled is ReaderStatus.NOTHING_AVAILABLE:
            assert self.has_news.wait(WAIT_S), "nothing comes"
        elif isinstance(polled, SplitBatch):
            self.batches.append(checked(polled.batch))
        return polled is ReaderStatus.END_OF_INPUT

    def close(self):
        """The reader does not wait for its thread for long; what that thread tells a broker at its end is told here."""
        self.reader.close()
        self.enumerator.close()
        if self.fetcher is not None:
            self.fetcher._thread.join(WAIT_S)
            assert not self.fetcher._thread.is_alive(), "the fetcher does not end"
