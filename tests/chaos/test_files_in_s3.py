"""A TaskManager process is killed while it writes to a bucket: no record is lost or doubled, and no upload is left behind."""

import os
import signal

import pytest

from penstock.common import Encoder, WatermarkStrategy
from penstock.connectors.file_system import (
    BucketAssigner,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
)
from penstock.datastream.connectors import DataGeneratorSource
from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.hosting.program.spark_host import SparkHost
from tests.chaos.test_checkpoints import VALUES, TrapAfterCheckpoint
from tests.chaos.test_killed_taskmanager import RUNS, Trap, Watcher
from tests.spark.processes import taskmanagers_left
from tests.spark.programs import environment

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.long]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("compacts", [False, True])
def test_a_killed_taskmanager_costs_no_record_and_doubles_none(
    spark, tmp_path, object_store, run, compacts
):
    watcher = Watcher()
    env = environment(2).use_executor(ClusterExecutor(SparkHost(), watcher))
    env.enable_checkpointing(100)
    env.get_checkpoint_config().set_checkpoint_storage_dir(str(tmp_path / "checkpoints"))
    source = DataGeneratorSource(lambda index: index, count=VALUES, rate_per_second=2000)
    trap = Trap(tmp_path, TrapAfterCheckpoint(tmp_path / "checkpoints"))
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").map(trap)
    # Spark's workers may have been started before the test's keys were in the environment.
    uri = object_store.uri("out").replace("s3://", "s3://test:test@")
    builder = FileSink.for_row_format(uri, Encoder.simple_string_encoder())
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    if compacts:
        strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).build()
        builder.enable_compact(strategy, FileCompactor.concat_file_compactor())
    numbers.map(str).sink_to(builder.build())
    client = env.execute_async("killed")
    os.kill(trap.wait(), signal.SIGKILL)
    client.get_job_execution_result().result()
    assert watcher.restarts == 1
    assert sorted(map(int, object_store.lines("out"))) == [*range(VALUES)]
    assert client.get_checkpoints().result().restored == 1
    assert object_store.uploads() == []
    assert not [key for key in object_store.objects() if "/." in key]
    assert not taskmanagers_left()
