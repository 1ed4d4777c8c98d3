"""Metrics of a driver, as reporters get them."""

from penstock.ops.reporters import source
from penstock.ops.reporters.source import giving_way, lent_metrics


def test_all_metrics_of_the_driver_are_lent(job_registry):
    with lent_metrics() as metrics:
        names = {(str(one.place.component), one.measured.name) for one in metrics}
    assert {("taskmanager", "seen"), ("jobmanager", "numRunningJobs")} <= names


def test_others_run_after_each_few_metrics(monkeypatch):
    told = []
    monkeypatch.setattr(source, "give_way", lambda: told.append(1))
    assert list(giving_way(range(1000))) == list(range(1000))
    assert len(told) == 5
