"""Start-up: from `execute_and_collect` to the first row in the driver, while Spark is up.

The first job of a driver loads the JobManager and ships Penstock to the executors. Each job starts its TaskManagers, if it shares no
process with others. A second job of the default finds warm workers. Floor: a warm Spark job of one Python task, which is what starting
a TaskManager takes at least.

Size: resident memory of the TaskManagers of the first default jobs, 15 seconds after they have ended. Floor: a Python that has
imported pyarrow.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping

from pyspark.sql import SparkSession

from benchmarks.figures import Figure
from benchmarks.memory import resident_mib
from benchmarks.probes import TASKMANAGERS, environment

ALONE = {"penstock.cluster.job-isolation": "true"}
SHARED: dict[str, str] = {}
"""That is the default."""
REST_S = 15
WITH_PYARROW = """
import pyarrow
from benchmarks.memory import resident_mib
import os
print(resident_mib(os.getpid()))
"""


def first_row_and_end(options: Mapping[str, str] | None = None) -> tuple[float, float]:
    """Seconds from the call to the first row, and to the end of the job. `options`: of the job."""
    rows = (
        environment(options)
        .from_collection(list(range(100)))
        .map(lambda value: (value % 10, 1))
        .key_by(lambda pair: pair[0])
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    started = time.perf_counter()
    with rows.execute_and_collect("benchmark start-up") as results:
        next(results)
        first = time.perf_counter() - started
        left = sum(1 for _ in results)
    if left != 99:
        raise SystemExit(f"startup: expected 99 more rows, got {left}")
    return first, time.perf_counter() - started


def spark_job_seconds() -> float:
    context = SparkSession.builder.getOrCreate().sparkContext
    started = time.perf_counter()
    context.parallelize([0], 1).map(lambda value: value + 1).collect()
    return time.perf_counter() - started


def first_of_a_driver() -> tuple[float, float]:
    """Seconds to the first row of the first job of a process whose Spark is warm, and those of a Spark job before it."""
    command = [sys.executable, "-m", "benchmarks.measures.startup"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    first, floor = json.loads(done.stdout.splitlines()[-1])
    return first, floor


def idle_mib() -> list[float]:
    """Resident memory of each TaskManager that has nothing to do any more."""
    processes = environment(SHARED).from_collection(list(range(100))).rebalance()
    with processes.map(lambda _: os.getpid()).execute_and_collect("benchmark of size") as results:
        found = set(results)
    time.sleep(REST_S)
    return [resident_mib(pid) for pid in found]


def pyarrow_mib() -> float:
    command = [sys.executable, "-c", WITH_PYARROW]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def measure(_events: int | None, runs: int) -> list[Figure]:
    first_row_and_end(ALONE)
    spark_job_seconds()
    done = [(*first_row_and_end(ALONE), spark_job_seconds()) for _ in range(runs)]
    firsts, ends, floors = zip(*done, strict=True)
    first_row_and_end(SHARED)  # Its workers stay.
    sizes = idle_mib()
    again, over = zip(*(first_row_and_end(SHARED) for _ in range(runs)), strict=True)
    first_ever, ever_floors = zip(*(first_of_a_driver() for _ in range(runs)), strict=True)
    settings = {"TaskManagers": TASKMANAGERS, "floor": "one warm Spark job of one Python task"}
    return [
        Figure(
            "startup of a driver's first job to the first row",
            first_ever,
            "s",
            ever_floors,
            settings,
        ),
        Figure("startup to the first row", firsts, "s", floors, settings),
        Figure("startup to the end of a job of 100 records", ends, "s", floors, settings),
        Figure("startup of a second job to the first row", again, "s", floors, settings),
        Figure("startup of a second job to its end", over, "s", floors, settings),
        Figure(
            "resident memory of an idle TaskManager",
            sizes,
            "MiB",
            [pyarrow_mib()],
            {"floor": "a Python with pyarrow"},
        ),
    ]


if __name__ == "__main__":
    SparkSession.builder.master(f"local[{TASKMANAGERS + 1}]").getOrCreate()
    spark_job_seconds()
    floor_seconds = spark_job_seconds()
    print(json.dumps([first_row_and_end(SHARED)[0], floor_seconds]))
