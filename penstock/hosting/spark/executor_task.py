"""What Spark's Python worker gets from us: functions, shipped by value, that leave nothing behind.

They put the shipped archive on the path, run the supervisor or a probe, and take both away again, so that the worker,
which Spark reuses, is as it was. Imports nothing of Penstock at module level: executors need not have it.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable
from typing import Any


def host_taskmanager(config: dict[str, Any], archive: Any) -> Iterable[str]:
    """Body of the Spark task. `archive`: broadcast variable with the package's zip.

    Yields why the TaskManager ended; never raises for that, so that Spark does not retry it.
    """
    import importlib
    import os

    from pyspark import SparkFiles, TaskContext

    spark_task = TaskContext.get()
    if spark_task is not None and spark_task.attemptNumber() > 0:
        # Spark runs a task again whose executor it lost; our ResourceManager has asked for a new one itself.
        return ["a retry by Spark, which is not wanted"]
    if spark_task is not None:
        config["taskmanager"]["cores"] = spark_task.cpus()
        config["taskmanager"]["files_root"] = os.path.abspath(SparkFiles.getRootDirectory())

    def supervise(path: str) -> str:
        folders = importlib.import_module("penstock.hosting.shipping.worker_folders")
        child_module = importlib.import_module("penstock.hosting.taskmanager.child")
        with folders.claimed(path):
            try:
                child = child_module.TaskManagerChild(path, config.pop("python"))
            except (OSError, ValueError) as error:
                return f"the TaskManager process could not be started: {error}"
            with child:
                supervisor = importlib.import_module("penstock.hosting.taskmanager.supervisor")
                return str(supervisor.supervise(supervisor.SupervisorConfig(**config), child))

    return [with_package(archive, supervise)]


def probe_executor(order: dict[str, Any], archive: Any, task: int) -> Iterable[dict[str, Any]]:
    """Body of the Spark task of a doctor. See `doctor.probe`."""
    import importlib

    def probe(_path: str) -> Any:
        return importlib.import_module("penstock.hosting.doctor.probe").probe(order, task)

    return [with_package(archive, probe)]


def with_package(archive: Any, call: Callable[[str], Any]) -> Any:
    """What `call` returns, which is given the path of the zip, while Penstock can be imported from there alone."""
    import os
    import shutil
    import sys
    import tempfile

    before = set(sys.modules)
    # `worker_folders` sweeps by this name.
    folder = tempfile.mkdtemp(prefix=f"penstock-{os.getpid()}-")
    path = os.path.join(folder, "penstock.zip")
    with pathlib.Path(path).open("wb") as target:
        target.write(archive.value)
    sys.path.insert(0, path)
    shadowed = {name: sys.modules.pop(name) for name in before if name.split(".")[0] == "penstock"}
    try:
        return call(path)
    finally:
        sys.path.remove(path)
        for name in [name for name in sys.modules if name.split(".")[0] == "penstock"]:
            del sys.modules[name]
        sys.modules.update(shadowed)
        sys.path_importer_cache.pop(path, None)
        shutil.rmtree(folder, ignore_errors=True)
