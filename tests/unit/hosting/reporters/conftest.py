"""An observatory with one metric of a TaskManager, beside those that the driver measures of itself."""

import pytest

from penstock.hosting.observation.observatory import Observatory
from penstock.hosting.reporters import source
from penstock.hosting.reporters.running import stop_reporters
from penstock.model.metrics import Measured, MetricType, Rate
from penstock.observation.metrics.report_format import ReportEncoder, Section
from penstock.observation.metrics.scopes import Component

PROCESS = {"host": "h.1", "tm_id": "tm-1"}


@pytest.fixture
def observatory(monkeypatch):
    made = Observatory()
    with made.metrics() as store:
        metrics = (
            Measured("seen", MetricType.COUNTER, 7, (("my grp", None),)),
            Measured("events", MetricType.METER, Rate(8.25, 99)),
        )
        section = Section(Component.TASKMANAGER, {}, metrics, 0, 0)
        store.report(ReportEncoder(PROCESS).encode([section]), 1)
    monkeypatch.setattr(source, "OBSERVATORY", made)
    yield made
    stop_reporters()
