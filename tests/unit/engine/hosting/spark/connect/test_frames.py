"""A DataFrame of a Spark Connect client in one job. tests/spark/clusters/test_connect.py has real ones."""

import threading
from types import SimpleNamespace

import pytest

from penstock.engine.hosting.spark.connect.cluster import ConnectCluster
from penstock.engine.hosting.spark.connect.frames import ConnectFrame
from penstock.engine.hosting.spark.dataframes.feed_reader import FeedFailed
from penstock.engine.hosting.spark.dataframes.spool import SpoolFile
from penstock.engine.model.errors import ConfigurationError, GraphError
from tests.tools.waiting import wait_until

ROWS = [
    SimpleNamespace(partition=0, name="a", bytes=3),
    SimpleNamespace(partition=1, name="b", bytes=4),
]


@pytest.fixture
def frame():
    return SimpleNamespace(sparkSession=SimpleNamespace(session_id="of-frames", is_stopped=False))


def run_of(frame, folder, monkeypatch, spool):
    monkeypatch.setattr(ConnectCluster.of(frame.sparkSession), "spool", spool, raising=False)
    return ConnectFrame(frame).run_in("Orders", str(folder))


def test_files_are_there_when_all_are_written(frame, tmp_path, monkeypatch):
    go = threading.Event()

    def spool(_tag, _frame, folder):
        go.wait()
        return ROWS

    run = run_of(frame, tmp_path / "rows", monkeypatch, spool)
    assert (run.partitions(), run.place_for_reader(), run.is_spooled) == (None, None, True)
    run.spool([])
    run.spool([])
    assert run.spooled() is None
    go.set()
    files = wait_until(run.spooled, "nothing is written")
    folder = str(tmp_path / "rows")
    assert files == {0: SpoolFile(folder, "a", 3), 1: SpoolFile(folder, "b", 4)}
    run.close(keeps_files=True)
    assert (tmp_path / "rows").exists()
    run.close()
    assert not (tmp_path / "rows").exists()


def test_what_spark_has_given_up_is_said_and_tried_again_when_asked(frame, tmp_path, monkeypatch):
    outcomes = [RuntimeError("ValueError: no such column"), ROWS]

    def spool(_tag, _frame, _folder):
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    run = run_of(frame, tmp_path, monkeypatch, spool)
    run.spool([])

    def failure():
        try:
            return run.spooled() and None
        except FeedFailed as error:
            return str(error)

    said = wait_until(failure, "no failure is said")
    assert said == "Spark has given up Orders: ValueError: no such column"
    run.spool([])
    assert set(wait_until(run.spooled, "nothing is written")) == {0, 1}


def test_without_a_folder_that_all_share_the_option_is_named(frame):
    with pytest.raises(ConfigurationError, match=r"Orders.*execution.checkpointing.dir"):
        ConnectFrame(frame).run_in("Orders", None)


def test_stages_of_a_batch_job_cannot_read_it(frame):
    with pytest.raises(GraphError, match="runtime mode BATCH"):
        ConnectFrame(frame).messages_of(2)
