"""Changelogs of tables: replayed as strictly as a table would take them, and read from sources under stress."""

import contextlib
import itertools
import random
import threading
import time

from penstock.engine.hosting.shipping.pickling import deserialize
from penstock.engine.model.row import RowKind
from penstock.testing.conformance.source_run import SourceRun
from tests.tools.waiting import wait_until

PATIENCE_S = 60


def told(records):
    """Kinds and values."""
    return [(str(row.get_row_kind()), *row) for row in records]


@contextlib.contextmanager
def streaming(source, count, parallelism=1, before=lambda: None):
    """A run whose snapshot of `count` rows is read and complete, so that it reads changes next. Tests' checkpoints begin at 1.

    `before`: called when the place of the stream is known, and nothing is read.
    """
    with contextlib.closing(SourceRun(source, parallelism)) as run:
        before()
        numbers = itertools.count(-1000)

        def has_streamed():
            number = next(numbers)
            kept = run.checkpoint(number)
            run.complete(number)
            run.look_on(1)
            return deserialize(kept.enumerator)["has_streamed"]

        run.read(records=count)
        wait_until(has_streamed, "the snapshot does not end")
        assert len(run.records) == count
        yield run


class Replayed:
    """A table that takes the changes of a changelog, and refuses those that do not fit its content. `key`: a row's."""

    def __init__(self, key=lambda row: row[0]):
        self.rows = {}
        self._key = key
        self._before = None

    def apply(self, records):
        for row in records:
            key, kind, values = self._key(row), row.get_row_kind(), tuple(row)
            if kind is RowKind.INSERT:
                assert key not in self.rows, f"{row} is there already"
                self.rows[key] = values
            elif kind is RowKind.UPDATE_BEFORE:
                assert self.rows[key] == values, f"{row} is not what is there: {self.rows[key]}"
                self._before = key
            elif kind is RowKind.UPDATE_AFTER:
                assert self._before == key, f"{row} does not follow the row before it"
                self.rows[key] = values
            else:
                assert self.rows.pop(key) == values, f"{row} is not what was there"
        return self

    @property
    def content(self):
        return sorted(self.rows.values())


class Restarting:
    """Reads a source that is stopped and restored again and again, at other parallelisms. `records`: those that count."""

    def __init__(self, source, parallelisms=(1, 2, 3), seed=0):
        assert (
            source.produced_type is not None
        )  # a job asks for it once, too, and keeps what it found
        self._source = source
        self._parallelisms = parallelisms
        self._random = random.Random(seed)
        self.records = []
        self.restarts = 0
        self._checkpoint = 0
        self._kept = None

    def read_until(self, is_done):
        """`is_done(records)`."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_done(self.records):
            assert time.monotonic() < deadline_s, f"{len(self.records)} records, and not done"
            parallelism = self._random.choice(self._parallelisms)
            run = SourceRun(self._source, parallelism, self._kept, patience_s=0.3)
            try:
                self._read(run, is_done)
            finally:
                run.close()
            self.restarts += 1

    def _read(self, run, is_done):
        before = list(self.records)
        for _ in range(self._random.randrange(2, 6)):
            run.read(batches=self._random.randrange(1, 6))
            self._checkpoint += 1
            self._kept = run.checkpoint(self._checkpoint)
            self.records = before + run.records
            # A failure may come before anybody is told.
            if self._random.random() < 0.8:
                run.complete(self._checkpoint)
            if is_done(self.records):
                return
        run.read(batches=1)  # and this is lost


class Writers:
    """Threads that change a table all the time. `change(random)`: one of their transactions."""

    def __init__(self, change, count=2):
        self._stop = threading.Event()
        self.errors = []
        self._threads = [
            threading.Thread(target=self._write, args=(change, number)) for number in range(count)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self.errors

    def _write(self, change, seed):
        chance = random.Random(seed)
        try:
            with change() as write:
                while not self._stop.is_set():
                    write(chance)
        except BaseException as error:
            self.errors.append(error)
            raise
