"""A process of each engine that runs group after group: PyFlink and its JVM take seconds to start.

One whose job hangs is ended, and the next group gets a new one.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.environments import python_of, variables
from differential.generator import Program

SIDE = Path(__file__).with_name("program_side.py")
HANGS = "HANGS"
START_S = 60.0
"""So long the first job of a process may take in addition."""


class Side:
    """`peer`: a name of `environments`; `package`: what its programs import; `log`: gets what the process prints."""

    def __init__(self, peer: str, package: str, root: Path, log: Path) -> None:
        self._peer, self._package, self._root, self._log = peer, package, root, log
        self._process: subprocess.Popen[str] | None = None
        self._answers = -1
        self._rest = b""

    @property
    def process_id(self) -> int | None:
        """None: there is no process now."""
        return None if self._process is None else self._process.pid

    def outcome(self, group: Sequence[Program], limit_s: float) -> dict[str, object]:
        """`lines` by seed, or `error`, which is HANGS if there is no answer in `limit_s` seconds."""
        if self._process is None:
            limit_s += START_S
            self._process = self._started()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(_asked(group, self._package) + "\n")
            self._process.stdin.flush()
            line = self._line(limit_s)
        except (TimeoutError, BrokenPipeError, EOFError) as error:
            self.close()
            hangs = isinstance(error, TimeoutError)
            return {"error": HANGS if hangs else f"the process ended: see {self._log}"}
        answer: dict[str, object] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process and all that it has started."""
        if self._process is None:
            return
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        os.close(self._answers)
        self._process, self._rest = None, b""

    def _started(self) -> subprocess.Popen[str]:
        python = python_of(self._peer, self._root)
        environment = variables(python)
        environment["PATH"] = f"{Path(python).parent}:{environment['PATH']}"
        self._answers, answers = os.pipe()
        try:
            with self._log.open("a") as log:
                return subprocess.Popen(
                    [python, SIDE, self._package, "/dev/stdin", f"/dev/fd/{answers}"],
                    env=environment, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True,
                    pass_fds=[answers], start_new_session=True,
                )  # fmt: skip
        finally:
            os.close(answers)

    def _line(self, limit_s: float) -> bytes:
        end = time.monotonic() + limit_s
        while b"\n" not in self._rest:
            left = max(0.0, end - time.monotonic())
            if not select.select([self._answers], [], [], left)[0]:
                raise TimeoutError
            piece = os.read(self._answers, 1 << 16)
            if not piece:
                raise EOFError
            self._rest += piece
        line, self._rest = self._rest.split(b"\n", 1)
        return line


def _asked(group: Sequence[Program], package: str) -> str:
    first = group[0]
    return json.dumps({
        "number": first.seed,
        "is_batch": first.is_batch if package == "penstock" else first.is_batch_on_flink,
        "has_chains": first.has_chains,
        "programs": [(one.seed, one.text) for one in group],
    })
