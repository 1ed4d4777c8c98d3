"""An job_registry with one metric of a TaskManager, beside those that the driver measures of itself."""

import pytest

from penstock.engine.metrics.report_format import ReportEncoder, Section
from penstock.engine.metrics.scopes import Component
from penstock.engine.model.metrics import Measured, MetricType, Rate
from penstock.ops.registry.job_registry import JobRegistry
from penstock.ops.reporters import source
from penstock.ops.reporters.running import stop_reporters

PROCESS = {"host": "h.1", "tm_id": "tm-1"}


@pytest.fixture
def job_registry(monkeypatch):
    made = JobRegistry()
    with made.metrics() as store:
        metrics = (
            Measured("seen", MetricType.COUNTER, 7, (("my grp", None),)),
            Measured("events", MetricType.METER, Rate(8.25, 99)),
        )
        section = Section(Component.TASKMANAGER, {}, metrics, 0, 0)
        store.report(ReportEncoder(PROCESS).encode([section]))
    monkeypatch.setattr(source, "JOB_REGISTRY", made)
    yield made
    stop_reporters()
