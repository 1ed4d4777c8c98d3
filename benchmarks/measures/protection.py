"""What the protection of connections costs: exchange of columns over loopback TCP, with tags and with TLS, beside the
same engine before it had either.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.measures.exchange import COLUMN_ROWS

ABOUT = """The job is that of `exchange`, columns over loopback TCP. The peer is this engine at
commit 5e53c48, the last one whose connections were authenticated only: it is checked out for the
run, and all three take turns. Both ends are processes of one user, so tags cover sums of the
columns. TLS is `security.ssl.internal.enabled`.

Of the 0.7 ms that a batch of 1 MB takes, each pass over its bytes costs about 0.13 ms, whatever it
computes: the bytes are not in the processor's second cache (512 kB). Without any pass the ratio is
0.97. Sums need a pass at each end, so 0.8 is what they can reach here; pieces of 256 kB, which stay
in that cache, cost more in calls than they save (0.60). TLS computes AES-256-GCM at each end,
which alone takes 0.44 ms a megabyte (`openssl speed`)."""
ROOT = Path(__file__).parents[2]
UNPROTECTED = "5e53c48"
MODULE = "benchmarks.measures.exchange"
FORMER_MODULE = "benchmarks.exchange"
"""Where that commit has it."""
BATCHES = 6_000
KINDS = {"tags": "", "TLS": ", more={'security.ssl.internal.enabled': True}"}


def measure(_events: int | None, runs: int) -> list[Figure]:
    before: list[float] = []
    now: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with checked_out(UNPROTECTED) as former:
        for _ in range(runs):
            before.append(rate(former, FORMER_MODULE, ""))
            for kind, more in KINDS.items():
                now[kind].append(rate(ROOT, MODULE, more))
    settings = {"rows per batch": COLUMN_ROWS, "batches": BATCHES, "peer": UNPROTECTED}
    return [
        Figure(f"exchange of columns over TCP with {kind}", rates, "rows/s", before, settings)
        for kind, rates in now.items()
    ]


@contextlib.contextmanager
def checked_out(commit: str) -> Generator[Path]:
    """A directory with the files of a commit."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
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


def rate(tree: Path, module: str, more: str) -> float:
    """Rows a second with the engine of this directory, in a process of its own. `module`: has its `job_seconds`."""
    program = (
        f"from {module} import job_seconds\n"
        f"print(job_seconds({BATCHES}, is_columnar=True, is_tcp=True{more}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return BATCHES * COLUMN_ROWS / float(done.stdout.splitlines()[-1])
