"""Figures of vertices over time, as JSON."""

import math

from penstock.ops.jobs.views import history
from penstock.ops.metrics.history_rings import COARSE, FIGURES, FINE
from tests.tools.observation.job_records import SINK, ToldJob


def rows(*values):
    return [(1_000 * place, [value] * len(FIGURES)) for place, value in enumerate(values)]


def test_each_figure_has_a_value_for_each_time():
    vertex = ToldJob().now_it_is().vertex(SINK)
    told = history.of_vertex(vertex, rows(1.0, math.nan, 0.12345), ["stateSize", "watermarkLag"])
    assert told == {
        "id": SINK,
        "name": "Reduce -> Sink: <out>",
        "timestamps": [0, 1000, 2000],
        "figures": {"stateSize": [1, None, 0.123], "watermarkLag": [1, None, 0.123]},
    }


def test_an_answer_tells_its_resolution_and_how_long_rows_are_kept():
    fine = history.history(77, FINE, {"vertices": []})
    assert fine == {"now": 77, "step": 1_000, "kept": 600_000, "vertices": []}
    assert history.history(77, COARSE, {})["kept"] == 6 * 3_600_000


def test_the_figures_of_a_job_are_some_of_those_that_there_are():
    assert set(history.OF_A_JOB) < set(FIGURES)
