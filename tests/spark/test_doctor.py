"""`penstock doctor` on real executors: what it sees of them, and what it finds when something is wrong."""

import pytest

from penstock.engine.hosting.spark.checks import ALL_JOBS, NO_JOBS, STREAMING, JobKind
from penstock.engine.model.config import Settings
from penstock.ops.cli.cli import main
from penstock.ops.doctor import examine as doctor
from penstock.ops.doctor.examine import examine

pytestmark = pytest.mark.spark


def test_a_cluster_on_which_jobs_can_run(spark_cluster):
    found = examine(spark_cluster, Settings({"parallelism.default": "4"}))
    (unprotected,) = found.findings
    assert "spark.authenticate=true and spark.network.crypto.enabled=true" in unprotected.remedy
    assert unprotected.stops == NO_JOBS
    assert all(map(found.can_run, JobKind))
    text = "\n".join(found.facts)
    assert "6 tasks ran, in 2 executors" in text
    assert "driver reached by 6 of 6 tasks; 12 of 12 connections" in text


def test_what_is_wrong_is_found_by_tasks_that_try_it(spark_cluster, monkeypatch):
    """Nobody listens where the driver is to be dialled, and a module is not there."""
    monkeypatch.setattr(doctor, "LEAST", {**doctor.LEAST, "penstock_nowhere": (1,)})
    settings = Settings({"jobmanager.rpc.port": "9", "jobmanager.rpc.bind-port": "0"})
    *found, _unprotected = examine(spark_cluster, settings).findings
    assert [one.stops for one in found] == [ALL_JOBS, STREAMING]
    assert "penstock_nowhere cannot be imported on" in found[0].what
    assert "driver cannot be reached at 127.0.0.1:9" in found[1].what
    assert "Connection refused" in found[1].what


def test_executors_that_cannot_run_python_are_told_of(spark, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")
    (finding, *hints) = examine(spark, Settings({})).findings
    assert finding.stops == ALL_JOBS
    assert 'cannot run on the executors: Cannot run program "/nowhere/python"' in finding.what
    assert "spark.pyspark.python" in finding.remedy
    assert all(one.is_hint for one in hints)


def test_the_command_ends_with_1_when_jobs_cannot_run(spark, capsys):
    assert main(["doctor", "-D", "parallelism.default=2"]) == 0
    assert "STREAMING jobs can run." in capsys.readouterr().out
    assert main(["doctor", "-D", "parallelism.default=64"]) == 1
    told = capsys.readouterr().out
    assert "needs 64 task slots (parallelism.default=64, taskmanager.numberOfTaskSlots=1)" in told
    assert "STREAMING jobs cannot run.\nBATCH jobs can run." in told
