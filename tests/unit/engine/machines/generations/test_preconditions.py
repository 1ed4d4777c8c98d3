"""Which jobs can be elastic."""

import pytest

from penstock.engine.machines.generations.desired_resources import refusal_of_graph
from penstock.engine.machines.generations.preconditions import check_elastic
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.slot_size import slot_size
from tests.tools.machines.job_graphs import A2A, BLOCKING, job_graph, word_count


def test_a_pipelined_job_can():
    check_elastic(word_count())
    assert refusal_of_graph(word_count()) is None


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (job_graph({"A": 1, "B": 1}, [("A", "B", A2A, BLOCKING)]), "pipelined exchanges only"),
        (job_graph({"A": -1}, []), "the parallelism of each vertex"),
    ],
)
def test_others_cannot(graph, why):
    with pytest.raises(ConfigurationError, match=why):
        check_elastic(graph)


def test_slots_of_a_given_size_keep_a_job_as_it_is():
    graph = word_count()
    graph.slot_sizes["default"] = slot_size({"cpu": 2})
    with pytest.raises(ConfigurationError, match="ask for resources"):
        check_elastic(graph)


def test_vertices_that_share_their_places_without_a_pipeline_between_them_cannot_run():
    graph = job_graph({"A": 2, "B": 2}, [], co_location={"A": "one", "B": "one"})
    assert refusal_of_graph(graph) is not None
