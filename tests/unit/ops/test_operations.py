"""A job that is about to start, as its observers see it."""

from penstock.engine.model.config import Settings
from penstock.engine.model.program import ProgramSettings
from penstock.ops.operations import ObservedJob
from penstock.ops.registry.job_registry import JOB_REGISTRY
from tests.tools.machines.job_graphs import word_count


def test_a_job_that_was_forgotten_before_anybody_asked_can_still_be_looked_at():
    graph = word_count()
    observed = ObservedJob(
        graph, Settings({"penstock.rest.enabled": "false"}), serves=False, given=None
    )
    observed.watch(ProgramSettings(), None)
    JOB_REGISTRY.forget(graph.job_id)
    assert observed.look().job_id == graph.job_id
