"""Where a cancel may interrupt a task's thread: in users' code, and never where something of ours would be cut in two."""

import contextvars
import importlib
import logging
import sys
import threading

import pytest

from penstock.common import Duration, Types, WatermarkStrategy
from penstock.common.serialization import BulkWriter, BulkWriterFactory
from penstock.connectors.file_system import FileSink, FileSource, StreamFormat
from penstock.connectors.sql_sink import SqlSink
from penstock.datastream import AsyncDataStream, AsyncFunction, KeyedProcessFunction
from penstock.datastream.connectors import DataGeneratorSource
from penstock.datastream.state import ValueStateDescriptor
from penstock.engine.hosting.os.interrupts import (
    IMPORTING,
    CancelSignal,
    UninterruptibleLock,
    interrupt,
    uninterruptible_condition,
)
from penstock.engine.hosting.reporting.logs.lines import hook
from penstock.engine.hosting.taskmanager.services.user_output import RoutedStream
from penstock.engine.hosting.taskmanager.task.source_input import FetcherThread
from penstock.engine.model.messages import UserOutput
from penstock.engine.runtime.checkpoint.two_phase_commit import CommitterState
from penstock.engine.runtime.interruption import Interruption, is_interruptible, uninterruptible
from penstock.engine.runtime.operators import SinkOperator
from penstock.engine.runtime.sources.contract import Fetched, SplitReader
from tests.tools.hosting.checked_locks import check_locks, users_code
from tests.tools.programs.checkpoint_programs import Watcher, file_sink, restarting_environment
from tests.tools.programs.user_functions import same
from tests.tools.runtime.operator_harness import OperatorHarness

HANG_S = 60


class OnThread:
    """A body on a thread of its own that may be interrupted; `reached` is set by the body."""

    def __init__(self, body) -> None:
        self.interruption = Interruption(threading.get_ident)
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.outcome: list[object] = []
        self._thread = threading.Thread(target=self._run, args=(body,))
        self._thread.start()
        assert self.reached.wait(HANG_S)

    def _run(self, body) -> None:
        self.interruption.begin()
        try:
            self.outcome.append(body(self))
        except CancelSignal as signal:
            self.outcome.append(signal)

    def end(self) -> object:
        self.go_on.set()
        self._thread.join(HANG_S)
        return self.outcome[0]


def turn_until(event) -> None:
    while not event.is_set():
        pass


def test_a_function_of_the_user_is_interrupted():
    def body(own):
        own.interruption.open()
        own.reached.set()
        turn_until(threading.Event())

    thread = OnThread(body)
    assert interrupt(thread.interruption)
    assert isinstance(thread.end(), CancelSignal)


def test_an_import_is_not_cut_in_two(tmp_path, monkeypatch):
    """Its parts would stay known, and no attribute of the package that is imported again."""
    package = tmp_path / "package_with_a_part"
    package.mkdir()
    (package / "__init__.py").write_text("from . import part\npart.go_on()\n")
    (package / "part.py").write_text(
        "from tests.unit.engine.hosting.os.test_interrupts import go_on\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def body(own):
        IMPORTERS.append(own)
        own.interruption.open()
        import package_with_a_part

        own.interruption.close()
        return package_with_a_part.part

    thread = OnThread(body)
    assert interrupt(thread.interruption)
    assert thread.end() is sys.modules.pop("package_with_a_part.part")
    del sys.modules["package_with_a_part"]


IMPORTERS = []


def go_on():
    """Within the import."""
    own = IMPORTERS.pop()
    own.reached.set()
    turn_until(own.go_on)


def test_python_imports_in_the_file_that_is_looked_for():
    assert (
        importlib.import_module.__globals__["_bootstrap"]._gcd_import.__code__.co_filename
        == IMPORTING
    )


@pytest.mark.parametrize("section", [uninterruptible, UninterruptibleLock])
def test_what_must_not_be_cut_in_two_is_not_and_users_code_behind_it_is(section):
    def body(own):
        own.interruption.open()
        with section():
            own.reached.set()
            turn_until(own.go_on)
        assert is_interruptible()
        own.reached.clear()
        turn_until(threading.Event())

    thread = OnThread(body)
    assert not interrupt(thread.interruption)
    thread.go_on.set()
    while not interrupt(thread.interruption):
        pass
    assert isinstance(thread.end(), CancelSignal)


def test_the_engine_around_users_code_is_not_interrupted_nor_a_thread_that_comes_to_its_end():
    def body(own):
        own.interruption.open()
        own.interruption.close()
        own.reached.set()
        turn_until(own.go_on)
        own.interruption.end()
        own.interruption.open()
        return is_interruptible()

    thread = OnThread(body)
    assert not interrupt(thread.interruption)
    assert thread.end() is False


def test_a_lock_that_is_not_to_be_had_leaves_things_as_they_were():
    lock = UninterruptibleLock()

    def body(own):
        own.interruption.open()
        assert not lock.acquire(blocking=False)
        own.reached.set()
        return is_interruptible()

    with lock:
        assert OnThread(body).end() is True
    assert not lock.locked()


def test_a_condition_on_such_a_lock_may_be_interrupted_while_it_waits():
    changed = uninterruptible_condition()

    def body(own):
        own.interruption.open()
        with changed:
            own.reached.set()
            while True:
                changed.wait(0.01)

    thread = OnThread(body)
    while not interrupt(thread.interruption):
        pass
    assert isinstance(thread.end(), CancelSignal)
    assert changed.acquire(blocking=False), "the interrupted thread has given the lock back"
    changed.release()


# ---------------------------------------------------------------------- who says so


@pytest.fixture
def in_users_code():
    with users_code() as own:
        yield own


def test_a_commit_may_not_be_interrupted(in_users_code):
    """A connection that is cut while it is being closed keeps its transaction open, and its locks taken."""
    seen = []

    def commit(_requests):
        seen.append(is_interruptible())
        return ()

    committer = CommitterState(commit)
    committer.add(1, ("prepared",))
    committer.complete(1)
    assert (seen, is_interruptible()) == ([False], True)


def test_a_writer_of_files_may_not_be_interrupted(in_users_code, tmp_path):
    seen = []

    class Noting(BulkWriter):
        def write(self, batch):
            seen.append(is_interruptible())

        def finish(self):
            """Nothing is buffered."""

        def size_bytes(self):
            return 0

    class Factory(BulkWriterFactory):
        def create(self, file, value_type):
            return Noting()

    operator = SinkOperator(FileSink.for_bulk_format(str(tmp_path), Factory()).build())
    OperatorHarness(operator, job_id="job").feed([1])
    operator.close()
    assert (seen, is_interruptible()) == ([False], True)


def test_a_reader_is_woken_where_no_cancel_cuts_in(in_users_code):
    """It takes a lock that its fetcher's thread takes too."""
    seen = []

    class Reader(SplitReader):
        def add_splits(self, splits):
            """Takes them."""

        def fetch(self):
            return Fetched()

        def wake_up(self):
            seen.append(is_interruptible())

    fetcher = FetcherThread(Reader(), lambda: None, "fetcher")
    fetcher.run(lambda: None)
    fetcher.close()
    assert (seen, is_interruptible()) == ([False, False], True)


def test_a_handler_of_logging_gets_its_record_where_no_cancel_cuts_in(in_users_code):
    """Its lock would stay taken, and every thread that logs would wait for it."""
    seen = []

    class Lock:
        def acquire(self):
            seen.append(is_interruptible())

        def release(self, *_):
            """Nobody else takes it."""

        __enter__, __exit__ = acquire, release

    class Noting(logging.Handler):
        def createLock(self):
            self.lock = Lock()

        def emit(self, record):
            """Noted above."""

    logger, handler = logging.getLogger("a users log"), Noting()
    logger.addHandler(handler)
    undo = hook(lambda _: True)
    try:
        logger.error("a line")
    finally:
        undo()
        logger.removeHandler(handler)
    assert (seen, is_interruptible()) == ([False], True)


def test_a_print_of_the_user_is_sent_whole(in_users_code):
    seen: list[tuple[UserOutput, bool]] = []
    stream = RoutedStream(
        lambda: (None, "map"),
        lambda one: seen.append((one.text, is_interruptible())),
        is_error=False,
    )
    stream.write("hello\n")
    assert (seen, is_interruptible()) == ([("hello", False)], True)


# ---------------------------------------------------------------------- every lock


@pytest.fixture
def checked_locks(monkeypatch):
    return check_locks(monkeypatch, "penstock.")


class Counting(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_processing_time_timer(1)
        assert is_interruptible(), "users' code may be interrupted"
        yield value

    def on_timer(self, timestamp, ctx):
        return ()


class Doubling(AsyncFunction):
    async def async_invoke(self, value):
        return [value * 2]


@pytest.mark.parametrize(
    ("is_unaligned", "backend"),
    [
        ("true", "rocksdb"),
        pytest.param("false", "hashmap", marks=pytest.mark.long),
        pytest.param("true", "hashmap", marks=pytest.mark.long),
        pytest.param("false", "rocksdb", marks=pytest.mark.long),
    ],
)
def test_no_thread_that_may_be_interrupted_takes_a_lock_of_ours(
    checked_locks, tmp_path, backend, is_unaligned
):
    """A job with what tasks do: sources with threads of their own, exchanges, state, timers, async calls, sinks, checkpoints."""
    database = f"sqlite:///{tmp_path}/rows.db"
    with_table(tmp_path / "rows.db")
    watcher = Watcher()
    env = restarting_environment(
        watcher,
        execution__checkpointing__interval="20 ms",
        execution__checkpointing__unaligned__enabled=is_unaligned,
        execution__checkpointing__dir=str(tmp_path / "checkpoints"),
        state__backend__type=backend,
    )
    source = DataGeneratorSource(same, 4000, 8000, type_info=Types.LONG(), batch_size=20)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    (tmp_path / "in").write_text("".join(f"{number}\n" for number in range(2000)))
    lines = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(tmp_path / "in")
    ).build()
    read = env.from_source(lines, WatermarkStrategy.no_watermarks(), "lines")
    numbers = numbers.union(read.map(int, Types.LONG()))
    keyed = numbers.key_by(lambda value: value % 7, Types.LONG()).process(Counting(), Types.LONG())
    doubled = AsyncDataStream.unordered_wait(
        keyed.rebalance(), Doubling(), Duration.of_seconds(30), 100, Types.LONG()
    )
    routed = doubled.partition_custom(lambda key, n: key % n, same)
    routed.map(str, Types.STRING()).sink_to(file_sink(tmp_path / "out"))
    rows = doubled.map(lambda value: (value,), Types.TUPLE([Types.LONG()]))
    rows.sink_to(
        SqlSink.builder().set_url(database).set_table("numbers").set_columns(["number"]).build()
    )
    env.execute("locks")
    assert watcher.completed
    assert checked_locks.taken > 1000
    assert not checked_locks.violations, "\n\n".join(checked_locks.violations)


def with_table(path) -> None:
    import sqlite3

    connection = sqlite3.connect(path)
    connection.execute("create table numbers (number integer)")
    connection.commit()
    connection.close()


def test_a_thread_that_inherits_the_tasks_context_is_not_the_tasks(in_users_code):
    """asyncio runs callbacks in the context of whoever gave them to the loop."""
    context = contextvars.copy_context()
    seen = []
    thread = threading.Thread(target=context.run, args=(lambda: seen.append(is_interruptible()),))
    thread.start()
    thread.join(HANG_S)
    assert (seen, is_interruptible()) == ([False], True)
