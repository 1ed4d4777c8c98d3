"""Whole jobs of a MiniCluster that write Iceberg tables: one committer for all writers, and each record once, whatever fails or changes."""

import pytest

from penstock.common import Row, Types, WatermarkStrategy
from penstock.connectors.lakehouse import IcebergSink, IcebergSource
from penstock.engine.model.graph.rescaling import parallelism_of
from tests.tools.connectors.iceberg_tables import CATALOG, Lake
from tests.tools.hosting.running_job import manager_of
from tests.tools.programs.checkpoint_programs import (
    FailsOnce,
    HeldSource,
    Watcher,
    restarting_environment,
    wait_until_running,
)
from tests.tools.programs.environments import batch_environment
from tests.tools.programs.rescaled_programs import Generations, SharedSplits
from tests.tools.programs.user_functions import same

NAME = "shop.numbers"
ROWS = Types.ROW_NAMED(["split", "number"], [Types.LONG(), Types.LONG()])
EVERY = {"execution__checkpointing__interval": "20 ms"}


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path / "lake")


def row_of(pair):
    return Row(split=pair[0], number=pair[1])


def written(env, lake, source, function):
    """(split, number) -> rows of the table. Returns the stream's end."""
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "held").uid("held")
    rows = stream.map(function).uid("map").map(row_of, ROWS).uid("row")
    builder = IcebergSink.for_row_data(NAME, ROWS).with_catalog(CATALOG, lake.properties)
    sink = builder.create_table_if_missing().with_partitioning("split").build()
    return rows.sink_to(sink).name("numbers").uid("numbers")


def pairs_in(lake):
    return [(one["split"], one["number"]) for one in lake.table(NAME).scan().to_arrow().to_pylist()]


def expected(splits, count):
    return [(split, number) for split in range(splits) for number in range(count)]


@pytest.mark.parametrize("is_unaligned", ["false", "true"])
def test_after_a_failure_each_row_is_there_once(lake, tmp_path, stage, is_unaligned):
    watcher = Watcher(stage)
    env = restarting_environment(
        watcher,
        execution__checkpointing__dir=str(tmp_path / "checkpoints"),
        execution__checkpointing__unaligned__enabled=is_unaligned,
        **EVERY,
    )
    written(env, lake, HeldSource(stage.name, 3, 40, 20), FailsOnce(stage.name, 30))
    client = env.execute_async("numbers")
    client.get_job_execution_result().result()
    assert stage.failed.is_set()
    assert watcher.restored[0] is not None, "it began anew"
    assert sorted(pairs_in(lake)) == expected(3, 40)
    checkpoints = commits_of(lake, client)
    assert len(checkpoints) >= 2
    assert checkpoints == sorted(set(checkpoints)), "two commits for a checkpoint"


def commits_of(lake, client):
    """The checkpoint that each snapshot names, oldest first."""
    summaries = [one.summary.additional_properties for one in lake.table(NAME).snapshots()]
    job = str(client.get_job_id())[:16]
    assert {one["penstock.job-id"] for one in summaries} == {job}
    assert {one["penstock.operator-id"] for one in summaries} == {"numbers-global-committer"}
    return [int(one["penstock.max-committed-checkpoint-id"]) for one in summaries]


def test_writers_change_their_number_while_the_committer_stays(lake, tmp_path, stage):
    watcher = Generations()
    env = restarting_environment(
        watcher,
        execution__checkpointing__dir=str(tmp_path / "checkpoints"),
        execution__checkpointing__interval="1 h",
        jobmanager__adaptive_scheduler__executing__cooldown_after_rescaling="0 s",
    )
    written(env, lake, SharedSplits(stage.name, 6, 40, 20), same)
    client = env.execute_async("numbers")
    stage.wait_until_held(6)
    for generation, count in enumerate((3, 1), start=1):
        wait_until_running(client)
        wanted = parallelism_of(manager_of(client).job_graph)
        client.rescale({
            one: count if there > 1 else there for one, there in wanted.items()
        }).result()
        watcher.wait_for_generation(generation)
    stage.gate.set()
    client.get_job_execution_result().result()
    assert sorted(pairs_in(lake)) == expected(6, 40)


def test_a_batch_adds_all_its_files_at_once(lake, stage):
    stage.gate.set()
    env = batch_environment().set_parallelism(2)
    written(env, lake, HeldSource(stage.name, 2, 10, 0), same)
    env.execute("numbers")
    assert sorted(pairs_in(lake)) == expected(2, 10)
    assert len(lake.table(NAME).snapshots()) == 1


def test_a_job_copies_rows_from_table_to_table(lake, tmp_path, stage):
    stage.gate.set()
    env = batch_environment().set_parallelism(2)
    written(env, lake, HeldSource(stage.name, 2, 10, 0), same)
    env.execute("numbers")
    source = IcebergSource.for_bounded_row_data(NAME).with_catalog(CATALOG, lake.properties)
    env = restarting_environment(
        Watcher(), execution__checkpointing__dir=str(tmp_path / "checkpoints"), **EVERY
    )
    rows = env.from_source(
        source.with_filter("number >= 5").build(), WatermarkStrategy.no_watermarks(), "in"
    )
    builder = IcebergSink.for_row_data("shop.copy", ROWS).with_catalog(CATALOG, lake.properties)
    rows.sink_to(builder.create_table_if_missing().build())
    env.execute("copy")
    found = sorted((one["split"], one["number"]) for one in lake.rows("shop.copy"))
    assert found == [pair for pair in expected(2, 10) if pair[1] >= 5]
