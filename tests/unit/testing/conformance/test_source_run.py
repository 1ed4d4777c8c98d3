"""A source that is driven by hand."""

import contextlib

import pytest

from penstock.testing.conformance.source_run import SourceRun
from tests.unit.testing.conformance.test_sources import EXPECTED, Pages


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_records_stand_in_the_order_in_which_they_came(parallelism):
    """What comes later stands behind all that was there, whichever subtask gave it."""
    with contextlib.closing(SourceRun(Pages(), parallelism)) as run:
        before = []
        while len(before) < len(EXPECTED):
            run.read(batches=1)
            assert run.records[: len(before)] == before
            before = run.records
    assert sorted(before) == EXPECTED
