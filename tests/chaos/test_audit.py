"""The audit on real Spark: faults of all kinds, and every committed record is right. `make chaos` runs longer."""

import pytest

from audit.controller import Controller, Options
from audit.faults import DECK

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.slow]


def test_what_is_committed_under_faults_is_neither_lost_nor_doubled(tmp_path):
    kinds = tuple(sorted(set(DECK)))  # each once, so that a short time has many
    report = Controller(Options(tmp_path / "run", seconds=15, seed=1, faults=kinds)).run()
    assert report.faults  # how many is a matter of the machine
    assert {fault["kind"] for fault in report.faults} <= set(DECK)
    assert min(report.audited["rows"].values()) > 1000
