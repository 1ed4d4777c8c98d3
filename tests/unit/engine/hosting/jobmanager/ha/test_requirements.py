"""What users have asked for, as the next driver reads it."""

import json

import pytest

from penstock.engine.hosting.jobmanager.ha.guard import requirements_of
from penstock.engine.model.elastic import (
    ParallelismBounds,
    requirements_to_plain,
)
from tests.tools.machines.job_graphs import job_graph

GRAPH = job_graph({"A": 2, "B": 2}, [("A", "B")])
ASKED = {"A": ParallelismBounds(1, 4), "B": ParallelismBounds(2, 3)}


def test_what_was_asked_is_read_again():
    text = json.dumps(requirements_to_plain(ASKED))
    assert requirements_of(text, GRAPH) == ASKED


def test_nothing_was_asked():
    assert requirements_of(None, GRAPH) is None


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"C": {"parallelism": {"upperBound": 1}}}'])
def test_what_does_not_fit_is_dropped_and_logged(text, caplog):
    assert requirements_of(text, GRAPH) is None
    assert "dropped" in caplog.text
