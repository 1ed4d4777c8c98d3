"""What TLS between hosts costs: the exchange of rows and columns between two network namespaces, and the start of jobs,
beside the last engine that had tags of its own on the frames.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from benchmarks.figures import Figure
from penstock.engine.hosting.network.wire.tls import new_identity
from tests.tools.network import Host, network

ABOUT = """The peer is this engine at commit 71287b33, the last one whose frames had tags of its own
(GMAC) and were not encrypted: it is checked out for the run, and both take turns. `exchange`: a
process with a data plane in each of two network namespaces, which are joined by a bridge; one task
writes, one reads. Rows and columns are those of the benchmark `exchange`. `start`: from
`execute_and_collect` of a job with few records to its end, in a MiniCluster whose TaskManagers are
threads: what they need is to connect, to register, and to connect to each other. It needs root, and
the history of the repository. `--events`: milliseconds of one measurement of an exchange, default
4,000."""
ROOT = Path(__file__).parents[2]
TAGGED = "71287b33"
MEASURED_MS = 4_000
TASKMANAGERS = (2, 100)
PROGRAM = str(ROOT / "benchmarks" / "workloads" / "between_hosts.py")
STARTS = """
import sys, time
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.hosting.local.minicluster import MiniCluster

count = int(sys.argv[1])
for _ in range(2):  # The first one loads everything.
    cluster = MiniCluster(parallelism=count)
    configuration = Configuration()
    configuration.set_string("taskmanager.numberOfTaskSlots", "1")
    configuration.set_string("penstock.console.progress", "false")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.use_executor(cluster.executor()).set_parallelism(count)
    started = time.perf_counter()
    with env.from_collection(range(count)).rebalance().map(str).execute_and_collect() as found:
        assert len(list(found)) == count
    seconds = time.perf_counter() - started
print(seconds)
"""


def measure(milliseconds: int | None, runs: int) -> list[Figure]:
    seconds = str((milliseconds or MEASURED_MS) / 1000)
    figures = []
    with checked_out(TAGGED) as former, network(2) as net:
        for kind in ("columns", "rows"):
            now, before = in_turns(
                former, runs, lambda tree, kind=kind: rate(tree, net.hosts, kind, seconds)
            )
            settings = {"peer": TAGGED, "hosts": 2}
            name = f"exchange of {kind} between two hosts"
            figures.append(Figure(name, now, "rows/s", before, settings))
        for count in TASKMANAGERS:
            now, before = in_turns(
                former, runs, lambda tree, count=count: start_seconds(tree, count)
            )
            settings = {"peer": TAGGED, "TaskManagers": count}
            figures.append(Figure(f"start of a job of {count}", now, "s", before, settings))
    return figures


def in_turns(
    former: Path, runs: int, measured: Callable[[Path], float]
) -> tuple[list[float], list[float]]:
    """Return what is measured of this engine, and of the former one."""
    pairs = [(measured(ROOT), measured(former)) for _ in range(runs)]
    return [now for now, _ in pairs], [before for _, before in pairs]


def rate(tree: Path, hosts: Sequence[Host], kind: str, seconds: str) -> float:
    """Rows per second between two hosts, with the engine of this directory."""
    producer, consumer = hosts
    secret = json.dumps(new_identity().pem.decode()) + "\n"
    with _started(tree, producer, "produce", producer.address, kind) as writing:
        assert writing.stdin is not None
        assert writing.stdout is not None
        writing.stdin.write(secret)
        writing.stdin.flush()
        port = writing.stdout.readline().strip()
        arguments = ("consume", consumer.address, producer.address, port, seconds)
        with _started(tree, consumer, *arguments) as reading:
            found, _ = reading.communicate(secret)
        writing.kill()
    return float(found)


def _started(tree: Path, host: Host, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*host.inside, sys.executable, PROGRAM, *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def start_seconds(tree: Path, count: int) -> float:
    done = subprocess.run(
        [sys.executable, "-c", STARTS, str(count)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def checked_out(commit: str) -> Generator[Path]:
    """A directory with the files of a commit."""
    # Below /var: hosts have a /tmp of their own.
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="penstock-bench-") as folder:
        tree = Path(folder) / "tree"
        command = ["git", "-C", str(ROOT), "worktree", "add", "--detach", str(tree), commit]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            text = f"protection needs the history of the repository: {done.stderr.strip()}"
            raise SystemExit(text)
        try:
            yield tree
        finally:
            command = ["git", "-C", str(ROOT), "worktree", "remove", "--force", str(tree)]
            subprocess.run(command, capture_output=True, check=True)
