"""A job that nobody has ended keeps its newest checkpoint, and its last line names it."""

import re
from pathlib import Path

import pytest

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.connectors.datagen import NumberSequenceSource
from penstock.engine.hosting.checkpoints.reader import read_savepoint
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.errors import JobExecutionError
from tests.tools.programs.environments import minicluster_environment
from tests.tools.waiting import wait_until

_LAST = re.compile(r"its newest checkpoint is kept: (\S+)\. Begin with it by penstock run")


def failing(folder, **settings):
    """A job that fails after its first checkpoint."""
    given = {
        "execution.checkpointing.dir": str(folder),
        "execution.checkpointing.interval": "50 ms",
        "restart-strategy.type": "none",
        **settings,
    }
    env = minicluster_environment(MiniCluster(1), given).set_parallelism(1)
    source = NumberSequenceSource(0, 10**9)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "Numbers")

    def call(number):
        if any(Path(folder).glob("*/chk-*/_metadata")):
            raise ValueError("planned failure")
        return number

    numbers.map(call, Types.LONG()).filter(lambda _: False).print()
    return env


def whole(folder):
    return [str(one.parent) for one in Path(folder).glob("*/chk-*/_metadata")]


def test_the_last_line_of_a_failed_job_names_its_newest_checkpoint(tmp_path, capfd):
    with pytest.raises(JobExecutionError, match="planned failure"):
        failing(tmp_path).execute("fails")
    last = capfd.readouterr().err.strip().splitlines()[-1]
    (kept,) = whole(tmp_path)
    assert _LAST.search(last)[1] == kept
    assert read_savepoint(kept).operators()  # It can be read.


def test_who_says_that_nothing_is_kept_has_nothing_kept(tmp_path, capfd):
    key = "execution.checkpointing.externalized-checkpoint-retention"
    with pytest.raises(JobExecutionError, match="planned failure"):
        failing(tmp_path, **{key: "NO_EXTERNALIZED_CHECKPOINTS"}).execute("fails")
    assert whole(tmp_path) == []
    assert _LAST.search(capfd.readouterr().err) is None


def test_a_cancelled_job_keeps_nothing_unless_it_is_asked_to(tmp_path, capfd):
    env = minicluster_environment(
        MiniCluster(1),
        {"execution.checkpointing.dir": str(tmp_path), "execution.checkpointing.interval": "50 ms"},
    ).set_parallelism(1)
    source = NumberSequenceSource(0, 10**9)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "Numbers").filter(
        lambda _: False
    ).print()
    running = env.execute_async("cancelled")
    wait_until(lambda: whole(tmp_path), "no checkpoint")
    running.cancel().result()
    wait_until(lambda: not whole(tmp_path), "the checkpoints stay")
    assert _LAST.search(capfd.readouterr().err) is None


def test_checkpoints_of_a_job_without_a_directory_go_with_it(capfd, monkeypatch, tmp_path):
    """They are in a folder for temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    env = minicluster_environment(
        MiniCluster(1),
        Configuration.from_dict({
            "execution.checkpointing.interval": "10 s", "restart-strategy.type": "none",
        }).to_dict(),
    )  # fmt: skip
    env.from_collection([0]).map(lambda number: 1 // number).print()
    with pytest.raises(JobExecutionError, match="ZeroDivisionError"):
        env.execute("fails")
    assert _LAST.search(capfd.readouterr().err) is None
    assert not list(tmp_path.rglob("chk-*"))
