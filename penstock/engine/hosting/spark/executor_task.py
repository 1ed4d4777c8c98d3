"""Functions that Spark's Python worker runs for TaskManagers. They are shipped by value, and no
module of theirs stays in the worker.

They put the shipped package on the path, run the supervisor or a probe, and remove both again, so
that the worker, which Spark reuses, is as it was. Imports nothing of Penstock at module level,
because executors need not have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def host_taskmanager(config: dict[str, Any], package: Any) -> Iterable[str]:
    """Body of the Spark task. `package`: broadcast variable with the package's zip, or its folder.

    Yields why the TaskManager ended. A TaskManager's failure never raises, because Spark would
    retry the task.
    """
    import importlib
    import os

    from pyspark import SparkFiles, TaskContext

    spark_task = TaskContext.get()
    if spark_task is not None and spark_task.attemptNumber() > 0:
        # Spark runs a task again whose executor it lost. Our ResourceManager has asked for a new
        # TaskManager itself.
        return ["this is a retry by Spark, which Penstock does not use"]
    if spark_task is not None:
        config["worker"]["cores"] = spark_task.cpus()
        config["worker"]["spark_task"] = {
            "stage": spark_task.stageId(),
            "partition": spark_task.partitionId(),
            "attempt": spark_task.taskAttemptId(),
            "executor": None,  # Its Python workers do not know it.
        }
        config["worker"]["files_root"] = os.path.abspath(SparkFiles.getRootDirectory())

    def supervise(path: str) -> str:
        child_module = importlib.import_module("penstock.engine.hosting.taskmanager.child")
        try:
            child = child_module.TaskManagerChild(path, config.pop("python"))
        except (OSError, ValueError) as error:
            return f"the TaskManager process could not be started: {error}"
        with child:
            supervisor = importlib.import_module("penstock.engine.hosting.taskmanager.supervisor")
            return str(supervisor.supervise(supervisor.SupervisorConfig(**config), child))

    return [with_package(package, supervise)]


def probe_executor(order: dict[str, Any], archive: Any, task: int) -> Iterable[dict[str, Any]]:
    """Body of the Spark task of `penstock doctor`. See `doctor_probe`."""
    import importlib

    def probe(_path: str) -> Any:
        return importlib.import_module("penstock.engine.hosting.spark.doctor_probe").probe(
            order, task
        )

    return [with_package(archive, probe)]


def claimed_folder(kind: str = "") -> tuple[str, int]:
    """Make a temporary folder. Returns its path, and a descriptor that holds a lock on it.

    Sweeps of other containers, which know other process ids, leave it alone while the lock is held. It gets the name by which
    `worker_folders` recognises leftovers only with the lock.
    """
    import os
    import sys
    import tempfile

    made = tempfile.mkdtemp(prefix="penstock-made-")
    claim = os.open(made, os.O_RDONLY)
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(claim, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:  # The file system has no locks.
            pass
    folder = made.replace("penstock-made-", f"penstock-{os.getpid()}-{kind}")
    os.rename(made, folder)
    return folder, claim


def with_package(package: Any, call: Callable[[str], Any]) -> Any:
    """Call `call` with the path of the zip, or of a folder in its place, while Penstock can be imported from there only. Returns its result."""
    import os
    import shutil
    import sys

    before = set(sys.modules)
    folder, claim = claimed_folder()
    path = os.path.join(folder, "penstock.zip")
    sys.path.insert(0, path)
    shadowed = {name: sys.modules.pop(name) for name in before if name.split(".")[0] == "penstock"}
    try:
        if isinstance(package, str):
            os.mkdir(path, 0o700)
            os.symlink(package, os.path.join(path, "penstock"))
        else:
            # It holds code, and it is this user's alone, as its folder is.
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
                target.write(package.value)
        return call(path)
    finally:
        sys.path.remove(path)
        for name in [name for name in sys.modules if name.split(".")[0] == "penstock"]:
            del sys.modules[name]
        sys.modules.update(shadowed)
        for place in [one for one in list(sys.path_importer_cache) if one.startswith(folder)]:
            sys.path_importer_cache.pop(place, None)
        shutil.rmtree(folder, ignore_errors=True)
        os.close(claim)
