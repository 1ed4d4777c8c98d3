"""What is said of Spark's Python workers that cannot run tasks. `tests/spark` asks real ones."""

import os
import sys
from types import SimpleNamespace

import pytest

from penstock.hosting.spark import worker_python
from penstock.hosting.spark.worker_python import (
    Interpreter,
    _is_our_own,
    cause_in,
    check_workers,
    refusal_of,
    remedy_for,
)
from penstock.model.errors import ConfigurationError

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


def test_an_interpreter_is_ours_only_with_its_environment(tmp_path, monkeypatch):
    folder = os.path.dirname(sys.executable)
    monkeypatch.setenv("PATH", folder)
    assert _is_our_own(sys.executable)
    assert _is_our_own(os.path.basename(sys.executable))
    (tmp_path / "python3").symlink_to(os.path.realpath(sys.executable))
    monkeypatch.setenv("PATH", f"{tmp_path}:{folder}")
    assert not _is_our_own("python3")
    assert not _is_our_own("none-of-that-name")


@pytest.fixture
def looked(monkeypatch):
    """`looked(there)`: sessions whose workers have this Python. Returns: the list of sessions that were asked."""

    def prepare(found):
        asked = []
        monkeypatch.setattr(
            worker_python, "_looked_at", lambda context: asked.append(context) or found
        )
        monkeypatch.setattr(worker_python, "_here", lambda: HERE)
        monkeypatch.setattr(worker_python._Known, "found", {})
        return asked

    return prepare


def session(master="spark://there:7077", python="python3", name="app-1"):
    return SimpleNamespace(master=master, pythonExec=python, applicationId=name)


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


def test_workers_that_did_not_answer_stop_nothing(looked):
    looked(None)
    check_workers(session(), needs_pyarrow=True, say=pytest.fail)
