"""What JobManager and TaskManagers log, and where it goes."""

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.hosting.reporting.logs import driver
from penstock.engine.hosting.reporting.logs.settings import LogSettings
from penstock.engine.hosting.taskmanager import process_log
from penstock.engine.hosting.taskmanager.taskmanager import TaskManagerLog
from penstock.engine.model.errors import JobExecutionError
from penstock.engine.model.messages import (
    EndTaskManager,
    FailureInfo,
    ReadLog,
    SlotFreed,
    StopTask,
    TaskStateChanged,
)
from penstock.engine.model.states import ExecutionState
from tests.tools.machines.task_executor_bench import A1, ME, attempt
from tests.tools.programs.checkpoint_programs import (
    HeldSource,
    Stage,
    Watcher,
    restarting_environment,
    sums_to_file,
)
from tests.tools.programs.environments import RESTARTS, minicluster_environment
from tests.tools.programs.user_functions import same

PROGRAM = """
from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.observer import JobObserver
env = StreamExecutionEnvironment.get_execution_environment()
env.use_executor(MiniCluster(observer=JobObserver()).executor())
env.from_collection([1, 2]).map(lambda one: one).print()
env.execute()
"""


@pytest.fixture
def env():
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    return env.use_executor(MiniCluster(parallelism=1, observer=JobObserver()).executor())


def lines(caplog, pattern, level=None):
    found = [r for r in caplog.records if re.search(pattern, r.getMessage())]
    return [r.getMessage() for r in found if level is None or r.levelno == level]


def moves_of(caplog, pattern):
    """(from, to) of what the pattern names, in order."""
    texts = lines(caplog, pattern)
    return [re.search(r"(\w+)->(\w+)", text).groups() for text in texts]


def test_every_transition_of_job_and_tasks_is_logged(env, caplog):
    caplog.set_level(logging.DEBUG, "penstock")
    env.from_collection([1, 2]).map(lambda one: one).print()
    env.execute()
    assert moves_of(caplog, r"^job=\S+ \w+->") == [
        ("INITIALIZING", "RUNNING"),
        ("RUNNING", "FINISHED"),
    ]
    attempt = re.search(r"attempt=(\S+)", lines(caplog, r"->FINISHED")[0])[1]
    states = ["CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING", "FINISHED"]
    of_attempt = rf"^job=\S+ attempt={re.escape(attempt)} "
    assert moves_of(caplog, of_attempt) == list(zip(states, states[1:], strict=False))
    at_taskmanager = ["CREATED", *states[2:]]
    of_attempt = rf"^job=\S+ taskmanager=tm-1 attempt={re.escape(attempt)} "
    assert moves_of(caplog, of_attempt) == list(zip(at_taskmanager, at_taskmanager[1:], strict=False))  # fmt: skip
    for pattern in ("tm-1 REQUESTED", "tm-1 REGISTERED", "alloc-1 REQUESTED", "alloc-1 FREED"):
        assert lines(caplog, pattern), pattern
    assert lines(caplog, "slot=0 OFFERED allocation=alloc-1")


def test_a_taskmanager_logs_its_slots_its_end_and_tasks_that_it_refuses(caplog):
    caplog.set_level(logging.INFO, "penstock")
    log = TaskManagerLog(ME)
    log.said(SlotFreed(ME, 0, A1))
    log.does(StopTask(attempt("t"), "its slot was released: timed out"))
    log.does(EndTaskManager("it is over"))
    refused = FailureInfo("Refused", "no slot\nwhile deploying")
    log.said(TaskStateChanged(attempt("t"), ExecutionState.FAILED, refused))
    assert caplog.messages == [
        "taskmanager=tm slot=0 FREED allocation=a1",
        "taskmanager=tm attempt=t[0]#0 STOP cause=its slot was released: timed out",
        "taskmanager=tm ENDS cause=it is over",
        "job=? taskmanager=tm attempt=t[0]#0 task=? CREATED->FAILED cause=Refused: no slot",
    ]


def test_a_large_job_starts_without_a_line_for_each_subtask_at_the_jobmanager(env, caplog):
    caplog.set_level(logging.INFO, "penstock.engine.hosting.jobmanager.machine_shell")
    env.from_collection(range(8)).map(lambda one: one).set_parallelism(4).print()
    env.execute()
    assert not lines(caplog, r"^job=\S+ attempt=")
    assert lines(caplog, r"^job=\S+ RUNNING->FINISHED")


def test_a_failure_is_logged_with_its_cause(env, caplog):
    caplog.set_level(logging.INFO, "penstock")
    env.from_collection([0]).map(lambda one: 1 // one).print()
    with pytest.raises(JobExecutionError):
        env.execute()
    assert lines(caplog, r"RUNNING->FAILING cause=UserCodeError", logging.WARNING)
    assert lines(caplog, r"^job=\S+ attempt=\S+ RUNNING->FAILED cause=UserCodeError", logging.INFO)
    assert lines(caplog, r"taskmanager=tm-1 attempt=.*->FAILED cause=UserCodeError")


def test_checkpoints_are_logged(tmp_path, caplog):
    """The last one, which the end of the data asks for."""
    caplog.set_level(logging.INFO, "penstock")
    stage = Stage("logged")
    stage.gate.set()
    env = restarting_environment(Watcher(), execution__checkpointing__interval="1 h")
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 2, 10, 0), same)
    env.execute("sums")
    assert len(lines(caplog, r"checkpoint=1 TRIGGERED type=CHECKPOINT", logging.INFO)) == 1
    assert lines(caplog, r"checkpoint=1 COMPLETED bytes=\d+ location=\S+", logging.INFO)


def test_slow_checkpoints_are_warned_of(tmp_path, caplog):
    caplog.set_level(logging.INFO, "penstock")
    stage = Stage("slow")
    stage.gate.set()
    settings = {
        "execution__checkpointing__interval": "1 h",
        "penstock__log__slow-checkpoint": "1 ms",
    }
    env = restarting_environment(Watcher(), **settings)
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 2, 10, 0), same)
    env.execute("sums")
    assert lines(caplog, r"checkpoint=1 SLOW ms=\d+ limit_ms=1 ", logging.WARNING)


def test_restarts_are_logged_with_what_they_begin_with(caplog, tmp_path):
    caplog.set_level(logging.INFO, "penstock")
    mark = tmp_path / "failed"

    def fails_once(value):
        if not mark.exists():
            mark.touch()
            raise ValueError("once")
        return value

    env = minicluster_environment(MiniCluster(parallelism=1, observer=JobObserver()), RESTARTS)
    env.set_parallelism(1).from_collection([1]).map(fails_once).print()
    env.execute()
    assert len(lines(caplog, r"^job=\S+ RESTARTS subtasks=\d+ checkpoint=None$", logging.INFO)) == 1


@pytest.fixture
def driver_log(tmp_path):
    """The log of this process, in a folder of its own."""
    driver.stop()
    driver.start(LogSettings(directory=str(tmp_path / "logs")))
    yield driver.log_folder()
    driver.stop()


def test_the_drivers_log_has_the_states_of_its_jobs(env, driver_log):
    env.from_collection([1, 2]).map(lambda one: one).print()
    env.execute()
    text = driver_log.read(ReadLog()).data.decode()
    for move in ("INITIALIZING->RUNNING", "RUNNING->FINISHED"):
        assert re.search(
            rf" INFO    penstock\.engine\.hosting\.\S+ - job=[0-9a-f]{{32}} {move}$",
            text,
            re.MULTILINE,
        )


def test_a_program_that_configures_no_logging_sees_none():
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "job=" not in done.stdout + done.stderr
    assert {"1", "2"} <= set(done.stdout.split())


def test_the_log_of_a_taskmanagers_process_goes_to_its_descriptor():
    """From INFO on, with time, level and logger; its reader may go."""
    reader, writer = os.pipe()
    logger = logging.getLogger("penstock")
    level = logger.level
    handler = process_log.log_to(writer)
    try:
        logging.getLogger("penstock.engine.hosting.taskmanager.taskmanager").info(
            "slot=%d FREED", 0
        )
        logging.getLogger("penstock.engine.hosting.taskmanager.taskmanager").debug("not this")
        written = os.read(reader, 4096).decode()
        os.close(reader)
        logging.getLogger("penstock.engine.hosting.taskmanager.taskmanager").info(
            "nobody reads this"
        )
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        os.close(writer)
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d [\d:,]+ INFO "
        r"penstock\.engine\.hosting\.taskmanager\.taskmanager: slot=0 FREED\n",
        written,
    )


SAYS = """
import logging, sys
import penstock
if sys.argv[1:]:
    logging.basicConfig(format="%(message)s", level="WARNING")
logging.getLogger("penstock.engine.hosting.jobmanager.machine_shell").warning("told by the console")
logging.getLogger("penstock.engine.hosting.jobmanager.jobmanager").error("told once")
logging.getLogger("penstock.connectors.kafka.reader").warning("commit=FAILED")
"""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["told once", "commit=FAILED"]),
        (["configured"], ["told by the console", "told once", "commit=FAILED"]),
    ],
)
def test_a_program_without_logging_sees_what_the_console_does_not_tell(arguments, expected):
    command = [sys.executable, "-c", SAYS, *arguments]
    said = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(penstock.__file__).parents[1]
    )
    assert said.stderr.splitlines() == expected
