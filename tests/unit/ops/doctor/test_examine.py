"""What the driver itself can find out before any task runs."""

from penstock.engine.hosting.spark.checks import STREAMING
from penstock.engine.model.config import Settings
from penstock.ops.doctor.examine import store_findings


def test_a_folder_of_checkpoints_that_the_driver_cannot_write_stops_streaming_jobs(object_store):
    good = object_store.uri("checkpoints")
    assert list(store_findings(Settings({"execution.checkpointing.dir": good}))) == []
    nowhere = good.replace("://", "://key:secret@no-such-", 1)
    (found,) = store_findings(Settings({"execution.checkpointing.dir": nowhere}))
    assert found.stops == STREAMING
    assert "no-such-" in found.what
    assert "cannot be used on the driver: cannot write" in found.what
    assert "secret" not in found.what


def test_folders_that_are_mounted_are_left_to_the_tasks():
    assert list(store_findings(Settings({"execution.checkpointing.dir": "/nowhere/x"}))) == []
    assert list(store_findings(Settings({}))) == []
