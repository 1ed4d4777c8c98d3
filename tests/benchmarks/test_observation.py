"""The benchmark of observation runs: a small job on null TaskManagers, over the product's wire."""

from benchmarks.workloads import observation_job
from benchmarks.workloads.observation_client import pages_of


def test_a_small_job_is_watched(monkeypatch):
    monkeypatch.setattr(observation_job, "WARM_S", 0.0)
    monkeypatch.setattr(observation_job, "INTERVAL_S", 0.05)
    order = {"parallelism": 4, "taskmanagers": 2, "seconds": 1, "serves": False, "polls": False}
    told = observation_job.run(order)
    assert told["events"] > 0
    assert 0 < told["longest_worked_ms"] <= told["longest_ms"] + 1
    assert told["longest_alone_ms"] > 0


def test_a_client_asks_for_pages_and_no_streams_or_files():
    pages = pages_of("a" * 32, "b" * 32)
    assert f"/jobs/{'a' * 32}/vertices/{'b' * 32}" in pages
    assert not any("{" in page or page == "/live" or page.endswith("/archive") for page in pages)
