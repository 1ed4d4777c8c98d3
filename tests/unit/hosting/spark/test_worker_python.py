"""What is said of Spark's Python workers that cannot run tasks. `tests/spark` asks real ones."""

import os
import sys

import pytest

from penstock.hosting.spark.worker_python import (
    Interpreter,
    _is_our_own,
    cause_in,
    refusal_of,
    remedy_for,
)

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


MISMATCH = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times
Traceback (most recent call last):
  File "worker.py", line 1, in main
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11
\tat org.apache.spark.api.python.BasePythonRunner
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (MISMATCH, "Python in worker has different version: 3.12 than that in driver: 3.11"),
        (MISMATCH.replace("[PYTHON_VERSION_MISMATCH] Python", "Python").split(" Python in")[0] + " no disk", "PySparkRuntimeError: no disk"),
        ('called.\n: java.io.IOException: Cannot run program "none": error=2', 'Cannot run program "none": error=2'),
        ("called.\n: org.apache.spark.SparkException: Job 3 cancelled", "Job 3 cancelled"),
        ("the context is stopped\nmore", "the context is stopped"),
        ("", "unknown cause"),
    ],
    ids=["another Python", "an error of Python", "no such program", "Spark's", "one line", "nothing"],
)  # fmt: skip
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
