"""Jobs of a MiniCluster with an autoscaler. Expectations: docs/spec/autoscaler.md."""

from functools import partial

from penstock.engine.model.graph.rescaling import parallelism_of
from penstock.ops.autoscaler.autoscaling import AUTOSCALERS
from tests.tools.hosting.running_job import control_of, manager_of
from tests.tools.programs.autoscaled_programs import slow, submitted
from tests.tools.programs.checkpoint_programs import expected_sums, lines_of
from tests.tools.programs.rescaled_programs import SharedSplits
from tests.tools.programs.user_functions import same
from tests.tools.waiting import wait_until


def parallelism(client):
    return max(parallelism_of(manager_of(client).job_master.job_graph).values())


def test_a_job_that_is_busy_all_the_time_grows_and_each_record_counts_once(tmp_path, stage):
    source = SharedSplits(stage.name, 6, 2000, 2000)
    client = submitted(tmp_path / "out", source, partial(slow, stage.name), 1)
    wait_until(lambda: parallelism(client) > 1, "it does not grow")
    scaler = AUTOSCALERS[control_of(client)]
    done = wait_until(
        lambda: [one for one in scaler.decisions() if one.outcome and not one.outcome.refusal],
        "the autoscaler does not see that the job has grown",
    )
    assert done[0].changes[0].after > done[0].changes[0].before == 1
    stage.gate.set()
    client.get_job_execution_result().result()
    assert lines_of(tmp_path / "out") == expected_sums(6, 2000)


def test_a_dry_run_only_recommends(tmp_path, stage):
    source = SharedSplits(stage.name, 6, 2000, 2000)
    dry = {"job.autoscaler.scaling.enabled": "false"}
    client = submitted(tmp_path / "out", source, partial(slow, stage.name), 1, dry)
    scaler = AUTOSCALERS[control_of(client)]
    found = wait_until(
        lambda: [one for one in scaler.decisions() if one.changes], "it recommends nothing"
    )
    assert found[0].changes[0].after > 1
    assert not found[0].orders
    stage.gate.set()
    client.get_job_execution_result().result()
    assert parallelism(client) == 1
    assert lines_of(tmp_path / "out") == expected_sums(6, 2000)


def test_a_job_without_records_shrinks(tmp_path, stage):
    client = submitted(tmp_path / "out", SharedSplits(stage.name, 6, 40, 20), same, 3)
    stage.wait_until_held(6)
    wait_until(lambda: parallelism(client) < 3, "it does not shrink")
    stage.gate.set()
    client.get_job_execution_result().result()
    assert lines_of(tmp_path / "out") == expected_sums(6, 40)
