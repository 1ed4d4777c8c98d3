"""Jobs on YARN whose driver, NodeManager or ResourceManager is killed, or whose HDFS takes no files."""

import re
from pathlib import Path

import pytest

from tests.tools.clusters.yarn_jobs import (
    EXPECTED,
    LIMIT_S,
    lines_of,
    meanwhile,
    order,
    run,
    submission,
    yarn,
)
from tests.tools.waiting import wait_until

__all__ = ["yarn"]

pytestmark = pytest.mark.spark


def test_a_killed_driver_is_started_again_and_takes_its_job_over(yarn, tmp_path):
    settings = {
        "spark.yarn.maxAppAttempts": "2",
        "spark.penstock.high-availability.type": "FILE",
        "spark.penstock.high-availability.storageDir": str(tmp_path / "ha"),
        "spark.penstock.high-availability.lease-duration": "4 s",
        "spark.penstock.high-availability.renew-interval": "500 ms",
    }
    order = submission(tmp_path, str(tmp_path / "sprung"), **settings)
    with (tmp_path / "submit.log").open("wb") as log:
        submit = yarn.sandbox.start(
            *order, env=yarn.environment, cwd=tmp_path, stdout=log, stderr=log
        )
    wait_until((tmp_path / "sprung").exists, "no task comes to the trap", LIMIT_S)
    yarn.sandbox.run("pkill", "-KILL", "-f", "org.apache.spark.deploy.yarn.ApplicationMaster ")
    assert submit.wait(LIMIT_S) == 0, (tmp_path / "submit.log").read_text()
    lines = lines_of(tmp_path)
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    assert {container.split("_")[-2] for _, _, container in lines} >= {"02"}


def test_a_nodemanager_that_is_killed_and_started_again_costs_no_row(yarn, tmp_path):
    """It keeps nothing of its containers: they are killed, their folders removed, and others come."""
    command = order(tmp_path, str(tmp_path / "sprung"))
    code, said = meanwhile(yarn, tmp_path, lambda: yarn.restart("nodemanager"), command)
    assert code == 0, said
    lines = lines_of(tmp_path)
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    assert {container.split("_")[-2] for _, _, container in lines} >= {"02"}


def test_a_resourcemanager_that_is_started_again_with_its_state_costs_nothing(yarn, tmp_path):
    over = tmp_path / "over"

    def restart():
        yarn.restart("resourcemanager")
        wait_until(yarn.has_node_again, "the node does not come back", LIMIT_S)
        over.touch()

    command = order(tmp_path, str(tmp_path / "sprung"), "waits", str(over))
    code, said = meanwhile(yarn, tmp_path, restart, command)
    assert code == 0, said
    lines = lines_of(tmp_path)
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    assert len({container for _, _, container in lines}) == 2
    assert "lost TaskManager" not in said


def test_a_resourcemanager_that_has_forgotten_the_application_ends_the_job_which_can_go_on(
    yarn, tmp_path
):
    forgets = "-Dyarn.resourcemanager.recovery.enabled=false"
    command = order(tmp_path, str(tmp_path / "sprung"))
    code, said = meanwhile(
        yarn, tmp_path, lambda: yarn.restart("resourcemanager", forgets), command
    )
    assert code == 1
    assert "no TaskManager can be started any more: the SparkSession was stopped" in said
    assert "a ResourceManager without recovery was started again" in said
    (kept,) = re.findall(r"its newest checkpoint is kept: (\S+)\. Begin with it by", said)
    assert (Path(kept.removeprefix("file://")) / "_metadata").exists()


def test_in_safe_mode_the_job_is_refused_in_one_sentence(yarn, tmp_path):
    admin = "org.apache.hadoop.hdfs.tools.DFSAdmin"
    yarn.tool(admin, "-safemode", "enter")
    try:
        done = run(yarn, tmp_path)
    finally:
        yarn.tool(admin, "-safemode", "leave")
    assert done.returncode == 1
    _, why, _, log = done.stderr.splitlines()
    assert why.startswith("penstock: Spark did not start: Cannot create directory ")
    assert why.endswith("Name node is in safe mode.")
    Path(log.removeprefix("Its log: ")).unlink()
