"""The benchmark of a fleet runs: a small one starts, completes a checkpoint, loses a TaskManager, and runs again."""

import pytest

from benchmarks.measures import fleet
from benchmarks.workloads import fleet_job

OPTIONS = {
    "execution.checkpointing.interval": "100 ms",
    "penstock.rest.enabled": "false",
}


@pytest.fixture
def found(monkeypatch):
    monkeypatch.setattr(fleet_job, "WARM_S", 0.0)
    order = {"taskmanagers": 5, "lost": 1, "seconds": 0.1, "has_page": False, "options": OPTIONS}
    return fleet_job.run(order)


def test_a_small_fleet_loses_a_taskmanager_and_runs_again(found):
    assert found["subtasks"] == 50
    assert found["checkpoints_s"]
    assert found["lost"] == 1
    (cause,) = found["causes"]
    assert cause.startswith("connection ")
    assert found["redeployed"]["seconds"] >= found["redeployed"]["noticed_s"] > 0
    said = {"RegisterTaskManager", "OfferSlots", "Heartbeat", "TaskStateChanged", "SplitRequest"}
    assert said | {"AcknowledgeCheckpoint", "MetricsReport"} <= set(found["largest"])
    figures = fleet.figures_of(5, found, {})
    goals = [one.settings["goal"].split(": ")[1] for one in figures if "goal" in one.settings]
    assert len(goals) == 6
    assert set(goals) <= {"met", "not met"}
