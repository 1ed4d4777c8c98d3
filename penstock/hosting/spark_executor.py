"""What Spark's Python worker gets from us: one function, shipped by value, that leaves nothing behind.

It puts the shipped archive on the path, runs the TaskManager's supervisor, and takes both away again, so that the worker, which
Spark reuses, is as it was. Imports nothing of Penstock at module level: executors need not have it.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import Any


def host_taskmanager(config: dict[str, Any], archive: Any) -> Iterable[str]:
    """Body of the Spark task. `archive`: broadcast variable with the package's zip.

    Yields why the TaskManager ended; never raises for that, so that Spark does not retry it.
    """
    import importlib
    import os
    import shutil
    import sys
    import tempfile

    from pyspark import TaskContext

    spark_task = TaskContext.get()
    if spark_task is not None and spark_task.attemptNumber() > 0:
        # Spark runs a task again whose executor it lost; our ResourceManager has asked for a new one itself.
        return ["a retry by Spark, which is not wanted"]
    before = set(sys.modules)
    folder = tempfile.mkdtemp(
        prefix=f"penstock-{os.getpid()}-"
    )  # `worker_folders` sweeps by this name
    path = os.path.join(folder, "penstock.zip")
    with pathlib.Path(path).open("wb") as target:
        target.write(archive.value)
    sys.path.insert(0, path)
    shadowed = {name: sys.modules.pop(name) for name in before if name.split(".")[0] == "penstock"}
    if spark_task is not None:
        config["taskmanager"]["cores"] = spark_task.cpus()
    try:
        folders = importlib.import_module("penstock.hosting.worker_folders")
        child_module = importlib.import_module("penstock.hosting.taskmanager_child")
        with folders.claimed(path):
            try:
                child = child_module.TaskManagerChild(path, config.pop("python"))
            except (OSError, ValueError) as error:
                return [f"the TaskManager process could not be started: {error}"]
            with child:
                supervisor = importlib.import_module("penstock.hosting.supervisor")
                return [supervisor.supervise(supervisor.SupervisorConfig(**config), child)]
    finally:
        sys.path.remove(path)
        for name in [name for name in sys.modules if name.split(".")[0] == "penstock"]:
            del sys.modules[name]
        sys.modules.update(shadowed)
        sys.path_importer_cache.pop(path, None)
        shutil.rmtree(folder, ignore_errors=True)
