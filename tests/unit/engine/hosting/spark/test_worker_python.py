"""What is said of Spark's Python workers that cannot run tasks. `tests/spark` asks real ones."""

import os
import sys
import threading
from types import SimpleNamespace

import pytest

from penstock.engine.hosting.spark import worker_python
from penstock.engine.hosting.spark.worker_python import (
    Interpreter,
    cause_in,
    check_executable,
    check_workers,
    refusal_of,
    remedy_for,
)
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError

HERE = Interpreter("/env/bin/python", "3.11.7", "26.0.1")


def there(python="3.11.2", pyarrow="26.0.1"):
    return Interpreter("/usr/bin/python3", python, pyarrow, "node-1")


@pytest.mark.parametrize("pyarrow", ["26.0.1", "15.0.0", "30.1"])
def test_workers_with_the_drivers_python_can_run_tasks(pyarrow):
    assert refusal_of(there(pyarrow=pyarrow), HERE, needs_pyarrow=True) is None


@pytest.mark.parametrize("needs_pyarrow", [True, False])
def test_another_python_is_refused_with_both_versions(needs_pyarrow):
    said = refusal_of(there("3.12.1"), HERE, needs_pyarrow=needs_pyarrow)
    for part in ("/usr/bin/python3", "node-1", "3.12.1", "/env/bin/python", "3.11.7"):
        assert part in said


def test_missing_and_old_pyarrow_are_refused_where_workers_need_it():
    missing, old = there(pyarrow=None), there(pyarrow="14.0.2")
    assert "without pyarrow" in refusal_of(missing, HERE, needs_pyarrow=True)
    said = refusal_of(old, HERE, needs_pyarrow=True)
    for part in ("14.0.2", "26.0.1", "pyarrow 15 or newer"):
        assert part in said
    for one in (missing, old):
        assert refusal_of(one, HERE, needs_pyarrow=False) is None


@pytest.mark.parametrize(
    "master", ["local[4]", "local-cluster[2,2,1024]", "spark://there:7077", "yarn"]
)
def test_the_line_to_write_is_python_that_does_it(master, monkeypatch):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    line = next(line for line in remedy_for(master).splitlines() if "os.environ" in line)
    exec(line.strip(), {})
    expected = sys.executable if master.startswith("local") else "/path/of/that/python"
    assert os.environ.pop("PYSPARK_PYTHON") == expected


CALLED = (
    "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
)
ABORTED = (
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 1 times\n"
)
TRACEBACK = 'Traceback (most recent call last):\n  File "worker.py", line 1, in main\n'
WORKER = "pyspark.errors.exceptions.base.PySparkRuntimeError: "
VERSIONS = "Python in worker has different version: 3.12 than that in driver: 3.11"
NO_PROGRAM = 'Cannot run program "none": error=2'


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            f"{CALLED}{ABORTED}{TRACEBACK}{WORKER}[PYTHON_VERSION_MISMATCH] {VERSIONS}\n\tat",
            VERSIONS,
        ),
        (f"{CALLED}{ABORTED}{TRACEBACK}{WORKER}no disk\n\tat x", "PySparkRuntimeError: no disk"),
        (f"{CALLED}: java.io.IOException: {NO_PROGRAM}", NO_PROGRAM),
        (f"{CALLED}: org.apache.spark.SparkException: Job 3 cancelled", "Job 3 cancelled"),
        ("the context is stopped\nmore", "the context is stopped"),
        ("", "unknown cause"),
    ],
    ids=["Python", "an error of Python", "no such program", "Spark's", "one line", "nothing"],
)
def test_the_cause_is_found_in_an_error_of_spark(text, cause):
    assert cause_in(text) == cause


@pytest.fixture
def looked(monkeypatch):
    """`looked(there)`: sessions whose workers have this Python. Returns: the list of sessions that were asked."""

    def prepare(found):
        asked = []
        monkeypatch.setattr(
            worker_python, "_answer", lambda context: asked.append(context) or found
        )
        monkeypatch.setattr(worker_python, "_here", lambda: HERE)
        monkeypatch.setattr(worker_python.Known, "looks", {})
        return asked

    return prepare


JVM = SimpleNamespace(
    sc=lambda: SimpleNamespace(
        getLocalProperties=lambda: SimpleNamespace(clone=dict), setLocalProperties=bool
    )
)


def session(master="spark://there:7077", python="python3", name="app-1"):
    return SimpleNamespace(master=master, pythonExec=python, applicationId=name, _jsc=JVM)


def test_a_session_is_asked_once_and_another_pyarrow_is_told_once(looked):
    asked, said = looked(there(pyarrow="20.0.0")), []
    first, second = session(), session(name="app-2")
    for context in (first, first, second):
        check_workers(context, needs_pyarrow=True, say=said.append)
    assert asked == [first, second]
    assert len(said) == 2
    assert "pyarrow is 20.0.0 in /usr/bin/python3 on node-1, and 26.0.1 on the driver" in said[0]


def test_equal_workers_are_not_worth_a_word(looked):
    looked(there())
    said = []
    check_workers(session(), needs_pyarrow=True, say=said.append)
    assert said == []


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[1,1,1024]"])
def test_workers_on_this_machine_with_our_own_interpreter_are_not_asked(looked, master):
    asked = looked(there(pyarrow=None))
    check_workers(session(master, sys.executable), needs_pyarrow=True, say=pytest.fail)
    assert asked == []


def test_workers_that_cannot_run_a_job_are_refused_each_time(looked):
    asked = looked(there(pyarrow="12.0"))
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"(?s)12\.0.*26\.0\.1.*PYSPARK_PYTHON"):
            check_workers(session(), needs_pyarrow=True, say=pytest.fail)
    assert len(asked) == 1


class Busy:
    """A session whose slots are all taken: no task of it runs before `free`."""

    master, pythonExec, applicationId, _jsc = "spark://there:7077", "python3", "busy", JVM

    def __init__(self):
        self.free = threading.Event()
        self.cancelled = []

    def cancelJobGroup(self, group):
        self.cancelled.append(group)
        self.free.set()


@pytest.fixture
def busy(monkeypatch):
    """A session that answers when it is free, among others that answer at once."""
    one = Busy()

    def answer(context):
        if context is one:
            one.free.wait()
        return there()

    monkeypatch.setattr(worker_python, "_answer", answer)
    monkeypatch.setattr(worker_python, "_here", lambda: HERE)
    monkeypatch.setattr(worker_python.Known, "looks", {})
    monkeypatch.setattr(worker_python.SparkSlots, "describe", lambda _slots: "2 slots, 2 in use")
    yield one
    one.free.set()


def test_a_job_that_waits_for_the_look_says_so_after_three_seconds(busy):
    story = []

    def wait(event, seconds):
        story.append(seconds)
        if len(story) > 1:  # The slot is free at last.
            busy.free.set()
            assert event.wait(60)
        return event.is_set()

    check_workers(busy, needs_pyarrow=True, say=story.append, wait=wait)
    first, said, rest = story
    assert (first, first + rest) == (3, 60)
    assert "which Python the workers have: 2 slots, 2 in use." in said
    assert "within 57 s" in said
    assert busy.cancelled == []


def test_the_jobs_that_hold_the_slots_are_named(busy, monkeypatch):
    monkeypatch.setattr(worker_python.SESSION_JOBS, "holders", lambda: " It is the job 'large'.")
    said = []
    check_workers(busy, needs_pyarrow=True, say=said.append, wait=lambda _event, _seconds: False)
    assert "2 in use. It is the job 'large'. If no slot" in said[0]


def test_a_look_that_takes_too_long_is_cancelled_and_stops_nothing(busy):
    said = []
    for _ in range(2):
        check_workers(
            busy, needs_pyarrow=True, say=said.append, wait=lambda event, _s: event.is_set()
        )
    assert len(said) == len(busy.cancelled) == 1


def test_an_interrupted_look_is_cancelled_and_made_again(busy):
    def interrupted(event, seconds):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_workers(busy, needs_pyarrow=True, say=pytest.fail, wait=interrupted)
    assert len(busy.cancelled) == 1
    check_workers(busy, needs_pyarrow=True, say=pytest.fail)


def test_no_session_waits_for_the_workers_of_another(busy):
    """Else one full cluster would stop the jobs of all others."""
    is_waiting = threading.Event()

    def wait(event, seconds):
        is_waiting.set()
        return event.wait(seconds)

    checks = [
        threading.Thread(
            target=check_workers,
            args=(context,),
            kwargs={"needs_pyarrow": True, "say": pytest.fail, "wait": wait},
            daemon=True,
        )
        for context in (busy, session())
    ]
    checks[0].start()
    assert is_waiting.wait(60)
    checks[1].start()
    checks[1].join(30)
    assert not checks[1].is_alive()
    assert checks[0].is_alive()
    busy.free.set()
    checks[0].join(60)


def wanted(interpreter):
    return Settings({"python.executable": interpreter})


def test_the_interpreter_that_the_program_wants_is_the_one_that_tasks_run():
    check_executable(wanted(sys.executable), session("local[2]"))
    check_executable(wanted("/opt/py/bin/python"), session(python="/opt/py/bin/python"))


@pytest.mark.parametrize("name", ["python", "python3"])
def test_a_name_on_path_is_the_drivers_interpreter_where_its_environment_is_active(
    name, monkeypatch
):
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    check_executable(wanted(name), session("local[2]"))


@pytest.mark.parametrize(
    ("context", "what_to_do"),
    [
        (session("local[2]"), "Run the program with '/opt/py/bin/python', or remove the option"),
        (session(), "--conf spark.pyspark.python=/opt/py/bin/python"),
        (session("yarn", sys.executable), 'os.environ["PYSPARK_PYTHON"] = "/opt/py/bin/python"'),
    ],
    ids=["local", "standalone", "yarn"],
)
def test_another_interpreter_than_the_programs_is_refused_with_what_to_set(context, what_to_do):
    with pytest.raises(ConfigurationError) as refused:
        check_executable(wanted("/opt/py/bin/python"), context)
    said = str(refused.value)
    theirs = sys.executable if context.master == "local[2]" else context.pythonExec
    assert f"python.executable is '/opt/py/bin/python', but the tasks run '{theirs}'" in said
    assert what_to_do in said
