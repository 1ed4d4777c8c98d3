"""A driver of the audited job, on Spark: `python -m audit.driver DIRECTORY --parallelism 2`.

Writes one line of JSON to its stdout for what the controller wants to know, and takes commands on its stdin: `stop` stops
the job with a savepoint. Run it again with the same directory after it was killed: it takes the job over.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from audit.event_log import Plan
from audit.job import build
from penstock.common import Configuration
from penstock.common.job_client import JobClient
from penstock.datastream import StreamExecutionEnvironment
from penstock.hosting.executor import ClusterExecutor
from penstock.hosting.job_observer import JobObserver
from penstock.hosting.session import SparkHost
from penstock.model.states import ExecutionState

SETTINGS = {
    "high-availability.type": "FILE",
    "penstock.high-availability.lease-duration": "4 s",
    "penstock.high-availability.renew-interval": "500 ms",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "execution.checkpointing.timeout": "30 s",
    "execution.checkpointing.tolerable-failed-checkpoints": "1000",
    "execution.checkpointing.num-retained": "3",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000000",
    "restart-strategy.fixed-delay.delay": "200 ms",
}


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


class Teller(JobObserver):
    """What becomes of the job, as lines."""

    def status_changed(self, change: Any) -> None:
        tell(status=str(change.status))

    def taskmanager_lost(self, resource_id: Any, cause: str) -> None:
        tell(lost=str(resource_id), cause=cause)

    def checkpoint_ended(self, ended: Any) -> None:
        if ended.location is None:
            tell(checkpoint=ended.checkpoint_id, failed=str(ended.reason), text=ended.text)
        else:
            slowest = ended.slowest
            times = [round(ms) for ms in (slowest.alignment_ms, slowest.sync_ms, slowest.async_ms)]
            tell(checkpoint=ended.checkpoint_id, size=ended.size_bytes, times_ms=times)

    def execution_changed(self, change: Any, job_graph: Any) -> None:
        if change.new is ExecutionState.FAILED:
            name = job_graph.vertices[change.attempt_id.vertex_id].name
            tell(task=name, attempt=str(change.attempt_id), failure=change.cause[-2000:])


def configuration(folder: Path, args: argparse.Namespace) -> Configuration:
    made = Configuration()
    settings = {
        **SETTINGS,
        "high-availability.storageDir": str(folder / "ha"),
        "high-availability.cluster-id": "audit",
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        "execution.checkpointing.savepoint-dir": str(folder / "savepoints"),
        "execution.checkpointing.interval": f"{args.interval_ms} ms",
        "execution.checkpointing.unaligned.enabled": str(args.unaligned).lower(),
    }
    if args.savepoint:
        settings["execution.state-recovery.path"] = args.savepoint
    for key, value in settings.items():
        made.set_string(key, value)
    return made


def start_spark(master: str) -> Any:
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
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def obey(client: JobClient, folder: Path, answering: threading.Lock) -> None:
    """Commands, until there are no more. `answering` is held while one is carried out."""
    for line in sys.stdin:
        with answering:
            if line.strip() == "stop":
                stop(client, folder)


def stop(client: JobClient, folder: Path) -> None:
    try:
        path = client.stop_with_savepoint(False, str(folder / "savepoints")).result()
    except Exception as error:
        tell(savepoint_failed=str(error))
    else:
        tell(savepoint=path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--master", default="local-cluster[2,2,1024]")
    parser.add_argument("--interval-ms", type=int, default=1000)
    parser.add_argument("--savepoint")
    parser.add_argument("--unaligned", action="store_true")
    args = parser.parse_args()
    folder = Path(args.folder).resolve()
    told = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    start_spark(args.master)
    env = StreamExecutionEnvironment.get_execution_environment(configuration(folder, args))
    env.set_parallelism(args.parallelism)
    env.use_executor(ClusterExecutor(SparkHost(), Teller()))
    env.add_python_file(str(Path(__file__).parent))
    build(env, str(folder), told["url"], Plan(**told["plan"]))
    client = env.execute_async("audit")
    tell(running=True)
    answering = threading.Lock()
    threading.Thread(target=obey, args=(client, folder, answering), daemon=True).start()
    client.get_job_execution_result().result()
    with answering:  # the savepoint with which it was stopped
        tell(finished=True)


if __name__ == "__main__":
    main()
