"""Bodies of Spark tasks are unpickled by Spark's Python worker, which has neither Penstock nor what it needs."""

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pyspark import cloudpickle

from penstock.engine.hosting.network.wire.dialling import Tickets
from penstock.engine.hosting.provider import MasterAddress
from penstock.engine.hosting.shipping import worker_files, worker_imports
from penstock.engine.hosting.shipping.worker_files import WorkerFiles
from penstock.engine.hosting.shipping.worker_imports import Archives
from penstock.engine.hosting.spark import background_jobs, executor_task
from penstock.engine.hosting.spark import provider as spark_driver
from penstock.engine.hosting.spark.batch import spark_runner, spark_task
from penstock.engine.hosting.spark.dataframes import feed_server, feed_task, frames
from penstock.engine.hosting.taskmanager_order import TaskSettings
from penstock.engine.model.checkpoints import TaskCheckpointing
from penstock.engine.model.slot_size import UNSIZED
from tests.tools.identities import new_credentials

SHIPPED = (executor_task, worker_files, worker_imports, spark_task, feed_task)
ARCHIVES = Archives(("a",), None, WorkerFiles((("n", "t"),), ("p",)))
UNPICKLE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"penstock", "pyarrow", "numpy"}:
            raise ImportError(f"the worker imports {name}")

sys.meta_path.insert(0, Hidden())
from pyspark import cloudpickle
print(callable(cloudpickle.loads(sys.stdin.buffer.read())))
"""


def taskmanager_body():
    context = SimpleNamespace(master="local[2]", getConf=lambda: None)
    provider = spark_driver.SparkProvider(SimpleNamespace(sparkContext=context), 2)
    settings = replace(
        TaskSettings(), checkpointing=TaskCheckpointing("/c"), job_parameters=(("a", "b"),)
    )
    credentials = new_credentials()
    provider.master_address = MasterAddress(
        "127.0.0.1", 1, credentials, Tickets(credentials), 0.5, settings
    )
    provider.worker_files = ARCHIVES.files
    return background_jobs.body_of(provider.worker_config("tm-1", UNSIZED), None)


BODIES = {
    "a TaskManager": taskmanager_body,
    "a stage": lambda: spark_runner.task_of(spark_task.Shipped(ARCHIVES, None), None),
    "a stage that a DataFrame goes on from": lambda: spark_runner.task_of(
        spark_task.Shipped(ARCHIVES, None, makes_frame=True), None
    ),
    "a feed": lambda: feed_server.feed_body(
        ARCHIVES, ("127.0.0.1", 1, ("127.0.0.1", 2), {"ticket": "00"})
    ),
    "a spool": lambda: frames.spooling_body(ARCHIVES, "/folder", None),
}


@pytest.mark.parametrize("kind", BODIES)
def test_a_worker_without_penstock_unpickles_it(kind):
    for module in SHIPPED:
        cloudpickle.register_pickle_by_value(module)
    data = cloudpickle.dumps(BODIES[kind]())
    done = subprocess.run(
        [sys.executable, "-c", UNPICKLE], input=data, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b"True\n"
