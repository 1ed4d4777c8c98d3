"""A driver of the audited job, on Spark: `python -m audit.driver DIRECTORY`.

Takes a JSON object on each line of its stdin: {"run": {"parallelism": 2, "unaligned": false, "tcp": false, "savepoint": null}} submits the
job, {"rescale": 3} gives all its vertices so many subtasks while it runs, {"stop": true} stops it with a savepoint; after that, or when a job could not begin, another may be submitted. Writes a line
of JSON to its stdout for what the controller wants to know. While another driver runs the job of this directory,
`run` waits; when that driver is gone, it takes the job over.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from audit.event_log import Plan
from audit.faults import DECOMMISSION_S
from audit.job import build
from audit.jvm import SHORT_LIVED_JVM
from penstock.common import Configuration
from penstock.common.job_client import JobClient
from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.hosting.program.spark_host import SparkHost
from penstock.engine.model.errors import JobSuspendedError
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.graph.rescaling import parallelism_of
from penstock.engine.model.ids import VertexId
from penstock.engine.model.states import ExecutionState

SETTINGS = {
    "high-availability.type": "FILE",
    "penstock.high-availability.lease-duration": "4 s",
    "penstock.high-availability.renew-interval": "500 ms",
    # What lies between tasks while they catch up is in the way of barriers, and waits in the buffers of joins.
    "taskmanager.memory.network": "32 mb",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "execution.checkpointing.timeout": "30 s",
    "execution.checkpointing.tolerable-failed-checkpoints": "1000",
    "execution.checkpointing.num-retained": "3",
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "500 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000000",
    "restart-strategy.fixed-delay.delay": "200 ms",
}


_TELLING = threading.Lock()


def tell(**what: Any) -> None:
    """A line in one piece: `print` writes its end apart, and another thread's line may come between."""
    with _TELLING:
        sys.stdout.write(f"{json.dumps(what)}\n")
        sys.stdout.flush()


class Teller(JobObserver):
    """What becomes of the job, as lines. `parallelism`: of its vertices, by id."""

    parallelism: Mapping[VertexId, int] = {}
    job_graph: JobGraph

    def on_job_submitted(self, event: Any) -> None:
        self.job_graph = event.job_graph
        self.parallelism = parallelism_of(event.job_graph)

    def on_job_status_changed(self, change: Any) -> None:
        tell(status=str(change.status))

    def on_task_manager_lost(self, event) -> None:
        tell(lost=str(event.resource_id), cause=event.cause)

    def on_graph_replaced(self, replaced: Any) -> None:
        self.parallelism = parallelism_of(replaced.job_graph)
        tell(generation=max(self.parallelism.values()), planned=replaced.is_planned)

    def on_checkpoint_ended(self, ended: Any) -> None:
        if ended.location is None:
            tell(checkpoint=ended.checkpoint_id, aborted=str(ended.reason), text=ended.text)
        else:
            slowest = ended.slowest
            times = [round(ms) for ms in (slowest.alignment_ms, slowest.sync_ms, slowest.async_ms)]
            tell(checkpoint=ended.checkpoint_id, size=ended.size_bytes, times_ms=times)

    def on_execution_state_changed(self, change: Any) -> None:
        if change.new is ExecutionState.FAILED:
            name = self.job_graph.vertices[change.attempt_id.vertex_id].name
            tell(task=name, attempt=str(change.attempt_id), failure=change.cause[-2000:])


def configuration(folder: Path, asked: dict[str, Any]) -> Configuration:
    made = Configuration()
    settings = {
        **SETTINGS,
        "parallelism.default": str(asked["parallelism"]),
        "high-availability.storageDir": str(folder / "ha"),
        "high-availability.cluster-id": "audit",
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        "execution.checkpointing.savepoint-dir": str(folder / "savepoints"),
        "execution.checkpointing.interval": f"{asked['interval_ms']} ms",
        "execution.checkpointing.unaligned.enabled": str(asked["unaligned"]).lower(),
        "penstock.exchange.local-sockets": str(not asked["tcp"]).lower(),
        "io.tmp.dirs": str(folder / "tmp"),
    }
    if asked["savepoint"]:
        settings["execution.state-recovery.path"] = asked["savepoint"]
    for key, value in settings.items():
        made.set_string(key, value)
    return made


def start_spark(master: str) -> None:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("penstock-audit")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        # Faults are the point: Spark must not give up before we do.
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.decommission.enabled": "true",
        "spark.executor.decommission.forceKillTimeout": f"{DECOMMISSION_S}s",
        # JVMs are started again and again, and live too briefly for what their second compiler costs.
        "spark.driver.extraJavaOptions": SHORT_LIVED_JVM,
        "spark.executor.extraJavaOptions": SHORT_LIVED_JVM,
    }.items():
        builder = builder.config(key, value)
    builder.getOrCreate()


class Driver:
    """One job at a time, each on a thread: who waits for its leadership still takes commands."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
        self._client: JobClient | None = None
        self._teller = Teller()
        self._answering = threading.Lock()

    def obey(self, lines: Iterable[str]) -> None:
        """Commands, until there are no more."""
        for line in lines:
            command = json.loads(line)
            if "run" in command:
                threading.Thread(target=self._run, args=(command["run"],), daemon=True).start()
            elif "rescale" in command:
                self._rescale(command["rescale"])
            elif "stop" in command:
                self._stop()

    def _run(self, asked: dict[str, Any]) -> None:
        try:
            self._client = self._submitted(asked)
            tell(running=True)
            self._client.get_job_execution_result().result()
        except JobSuspendedError as error:
            tell(suspended=str(error))
        except Exception:  # however it ended, the controller judges it
            tell(failed=traceback.format_exc())
        else:
            with self._answering:  # the savepoint with which it was stopped comes first
                tell(finished=True)

    def _submitted(self, asked: dict[str, Any]) -> JobClient:
        env = StreamExecutionEnvironment.get_execution_environment(
            configuration(self._folder, asked)
        )
        self._teller = Teller()
        env.use_executor(ClusterExecutor(SparkHost(), self._teller))
        env.add_python_file(str(Path(__file__).parent))
        build(env, str(self._folder), self._told["url"], Plan(**self._told["plan"]))
        return env.execute_async("audit")

    def _rescale(self, most: int) -> None:
        assert self._client is not None, "nothing was submitted"
        known = self._teller.parallelism
        before = max(known.values())
        tell(rescales=most, before=before)
        try:
            if before != most:
                self._client.rescale(dict.fromkeys(known, (1, most)))
        except Exception as error:  # the controller judges this one, too
            tell(rescale_failed=str(error))

    def _stop(self) -> None:
        assert self._client is not None, "nothing was submitted"
        with self._answering:
            try:
                stopped = self._client.stop_with_savepoint(False, str(self._folder / "savepoints"))
                tell(savepoint=stopped.result())
            except Exception as error:  # the controller judges this one, too
                tell(savepoint_failed=str(error))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--master", default="local-cluster[2,2,1024]")
    args = parser.parse_args()
    faulthandler.register(signal.SIGUSR1)  # where it hangs, the controller asks for its stacks
    start_spark(args.master)
    tell(ready=True)
    Driver(Path(args.folder).resolve()).obey(sys.stdin)


if __name__ == "__main__":
    main()
