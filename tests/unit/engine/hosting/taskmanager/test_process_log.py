"""The log of a TaskManager's process: what its file has, and what the driver is told."""

import contextlib
import json
import logging
import logging.config
import re

import pytest

from penstock.engine.hosting.reporting.logs.lines import Place, hook
from penstock.engine.hosting.reporting.logs.settings import LogSettings
from penstock.engine.hosting.taskmanager import process_log
from penstock.engine.hosting.taskmanager.process_log import Logging, ProcessLog
from penstock.engine.hosting.taskmanager.services.user_output import RoutedStream
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, ResourceId, VertexId
from penstock.engine.model.messages import LogEvents, UserOutput

JOB = "0123456789abcdef0123456789abcdef"
ATTEMPT = AttemptId(ExecutionVertexId(VertexId("v"), 2), 1)
PLACE = Place(JOB, "Map", 3, 4, 1)
WHERE = rf"\[job={JOB} operator=Map subtask=3/4 attempt=1\]"


class Process:
    """This process as if it were a TaskManager's, on the thread of a task."""

    def __init__(self, folder, form="text"):
        self.folder, self.sent = folder, []
        settings = LogSettings(form=form)
        path, me = str(folder / "tm.log"), ResourceId("tm-1")
        self.log = ProcessLog(settings, path, me, lambda: Logging(PLACE, ATTEMPT), self.sent.append)
        self.stdout, self.stderr = [
            RoutedStream(lambda: (ATTEMPT, "Map"), self.sent.append, is_error=error, log=self.log)
            for error in (False, True)
        ]

    def __enter__(self):
        """From here on records and lines of this process are its own. pytest has handlers of its own at the root."""
        self.before = untouched_logging()
        root = self.before.__enter__()
        root.handlers[:] = []
        root.setLevel(logging.INFO)
        logging.lastResort = logging.StreamHandler(self.stderr)
        logging.lastResort.setLevel(logging.WARNING)
        self.undo = hook(self.log.take)
        return self

    def __exit__(self, *error):
        self.log.tick()  # As the TaskManager does, every half second.
        self.undo()
        self.before.__exit__(*error)

    @property
    def lines(self):
        return (self.folder / "tm.log").read_text("utf-8").splitlines()

    @property
    def printed(self):
        return (self.folder / "tm.out").read_text("utf-8").splitlines()

    @property
    def events(self):
        return [event for told in self.sent if isinstance(told, LogEvents) for event in told.events]

    @property
    def outputs(self):
        return [told.text for told in self.sent if isinstance(told, UserOutput)]


@contextlib.contextmanager
def untouched_logging():
    """The state of `logging` is the process's: what a program does to it is undone."""
    root, level, handlers = logging.root, logging.root.level, list(logging.root.handlers)
    last_resort = logging.lastResort
    try:
        yield root
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
        logging.lastResort = last_resort


@pytest.fixture
def process(tmp_path):
    return Process(tmp_path)


LOG = logging.getLogger("app.prices")


def test_a_record_from_info_on_is_a_line_with_its_task(process):
    with process:
        LOG.info("no price for %s", "EUR")
        LOG.debug("not this")
    (line,) = process.lines
    assert re.fullmatch(
        rf"[\d-]{{10}} [\d:,]{{12}} INFO    app\.prices {WHERE} - no price for EUR", line
    )
    assert process.events == []


def test_a_warning_is_told_to_the_driver_once_and_not_printed_besides(process):
    """Without any configuration Python prints warnings by itself."""
    with process:
        LOG.warning("no price for %s", "EUR")
    (event,) = process.events
    assert (event.level_name, event.logger) == ("WARNING", "app.prices")
    assert event.text == "no price for EUR"
    assert (event.attempt_id, event.operator) == (ATTEMPT, "Map")
    assert process.outputs == []
    assert len(process.lines) == 1
    assert process.printed == ["no price for EUR"]


@pytest.mark.parametrize(
    "configure",
    [
        lambda stream: logging.basicConfig(stream=stream, level="DEBUG", format="own %(message)s"),
        lambda stream: logging.config.dictConfig({
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"own": {"format": "own %(message)s"}},
            "handlers": {
                "own": {"class": "logging.StreamHandler", "stream": stream, "formatter": "own"}
            },
            "root": {"level": "DEBUG", "handlers": ["own"]},
        }),
    ],
)
def test_a_function_that_configures_logging_has_its_level_and_handler(process, configure):
    """The file has all lines once; the driver gets a warning as a record, and the rest as the handler prints it."""
    with process:
        configure(process.stderr)
        LOG.debug("detail")
        LOG.warning("late")
    assert [line.rpartition(" - ")[2] for line in process.lines] == ["detail", "late"]
    assert process.outputs == ["own detail"]
    assert [event.text for event in process.events] == ["late"]
    assert process.printed == ["own detail", "own late"]


def test_levels_of_the_functions_own_loggers_count(process):
    logger = logging.getLogger("app.quiet")
    logger.setLevel(logging.ERROR)
    with process:
        logger.warning("too quiet")
        logger.error("loud")
    assert [event.text for event in process.events] == ["loud"]
    assert len(process.lines) == 1


def test_what_repeats_is_counted_and_told_later(process, monkeypatch):
    now = [0]
    monkeypatch.setattr(process_log, "monotonic_ms", lambda: now[0])
    with process:
        for number in range(42):
            LOG.warning("no price for %s", number)
    assert [event.text for event in process.events] == ["no price for 0"]
    now[0] = 10_000
    process.log.tick()
    first, last = process.events
    assert (last.text, last.repeats) == ("no price for 41", 40)
    assert first.sameness == last.sameness
    assert len(process.lines) == 42


def test_more_different_warnings_than_the_wire_should_carry_are_counted(process, monkeypatch):
    monkeypatch.setattr(process_log, "monotonic_ms", lambda: 0)
    with process:
        for number in range(150):
            LOG.warning("%s".join(("a" * (number + 1), "b")), number)
    process.log.tick()
    assert len(process.events) == 100
    assert sum(told.left_out for told in process.sent) == 50
    assert len(process.lines) == 150


def test_a_finalizer_that_logs_while_lines_are_folded_waits_for_nothing(process, monkeypatch):
    """Python's collector may run within any call, also where the lock of the fold is held."""
    due = process.log.folding.due

    def collects(*arguments, **more):
        if not process.log.folding.left_out:  # Once.
            LOG.warning("connection was not closed")
        return due(*arguments, **more)

    monkeypatch.setattr(process.log.folding, "due", collects)
    with process:
        LOG.warning("first")
    process.log.tick()
    assert "connection was not closed" in {event.text for event in process.events}


def test_what_repeats_is_told_before_the_end_of_its_task(process):
    with process:
        LOG.warning("same")
        LOG.warning("same")
        process.stderr.end_thread()
    assert [event.repeats for event in process.events] == [0, 0]


def test_what_is_printed_is_in_the_log_and_raw_beside_it(process):
    print("one\ntwo", file=process.stdout)
    print("bad", file=process.stderr)
    form = re.compile(rf" (INFO    std\w+) {WHERE} - (\w+)$")
    kinds = [form.search(line).groups() for line in process.lines]
    assert kinds == [
        ("INFO    stdout", "one"),
        ("INFO    stdout", "two"),
        ("INFO    stderr", "bad"),
    ]
    assert process.printed == ["one", "two", "bad"]
    assert process.outputs == ["one", "two", "bad"]


def test_an_error_has_its_traceback_in_the_log_and_at_the_driver(process):
    with process:
        try:
            int("EUR")
        except ValueError:
            LOG.exception("failed")
    assert process.lines[0].endswith(" - failed")
    assert process.lines[-1] == "ValueError: invalid literal for int() with base 10: 'EUR'"
    (event,) = process.events
    assert event.text.splitlines()[0] == "failed"
    assert (
        event.text.splitlines()[-1] == "ValueError: invalid literal for int() with base 10: 'EUR'"
    )


class Broken:
    def __str__(self):
        raise ValueError("no text")


def test_a_record_that_cannot_be_made_a_text_does_not_fail_the_call(process):
    with process:
        LOG.info("%s", Broken())
        LOG.info("%d", "text")
    assert len(process.lines) == 2
    assert " - %s (<" in process.lines[0]
    assert process.lines[1].endswith(" - %d ('text',)")


def test_lines_may_be_json(tmp_path):
    process = Process(tmp_path, "json")
    with process:
        LOG.info("two\nlines")
    print("printed", file=process.stdout)
    first, second = map(json.loads, process.lines)
    assert first["message"] == "two\nlines"
    assert first["flink-job-id"] == second["flink-job-id"] == JOB
    assert (second["logger"], second["message"], second["subtask"]) == ("stdout", "printed", 3)


def test_levels_that_the_program_has_set_count_in_the_taskmanagers(process, monkeypatch):
    """By what a TaskManager's process calls at its start."""
    monkeypatch.setattr(logging.Logger, "callHandlers", logging.Logger.callHandlers)
    monkeypatch.setattr(LOG, "level", LOG.level)
    settings = LogSettings(level=logging.ERROR, levels=(("app.prices", logging.DEBUG),))
    with untouched_logging():
        process_log.install(settings, process.log.take, None)
        LOG.debug("detail")
        logging.getLogger("other").warning("not this")
    assert [line.rpartition(" - ")[2] for line in process.lines] == ["detail"]
