"""Processes that the controller starts: what they say, line by line, and how they end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from audit import clocks
from audit.processes import MARK

ROOT = str(Path(__file__).parents[1])
_TAIL = 12_000
_POLL_S = 0.05
_STACKS = "(most recent call first)"
_STACKS_S = 5.0


class Child:
    """A module run as a process; its lines of JSON are kept, its stderr goes to a file."""

    def __init__(self, mark: str, log: Path, module: str, *arguments: str) -> None:
        self.log = log
        self.lines: list[tuple[float, dict[str, Any]]] = []
        self._heard = threading.Condition()
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env={**os.environ, **environment(mark, log.parent)},
                start_new_session=True,
                text=True,
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                what = json.loads(line)
            except ValueError:
                continue  # a user's print, or Spark's
            if not isinstance(what, dict):
                continue
            with self._heard:
                self.lines.append((time.monotonic(), what))
                self._record(what)
                self._heard.notify_all()
        with self._heard:
            self._heard.notify_all()

    def _record(self, what: dict[str, Any]) -> None:
        """For people who look for what went wrong."""
        with self.log.with_suffix(".jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"at": time.strftime("%H:%M:%S"), **what}) + "\n")

    def tell(self, command: dict[str, Any]) -> None:
        """A line of JSON. One that is dead hears nothing."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{json.dumps(command)}\n")
            self.process.stdin.flush()

    def says(self, text: str, timeout_s: float) -> bool:
        """Wait for a text in its stderr."""
        deadline = time.monotonic() + timeout_s
        while text not in self.log.read_text(encoding="utf-8", errors="replace"):
            if not self.is_alive or time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def wait_for(
        self, found: Callable[[dict[str, Any]], bool], since: int, timeout_s: float
    ) -> Any:
        """The first line from number `since` that is it; None when the process ends or the time is over."""

        def look() -> dict[str, Any] | None:
            return next((what for _, what in self.lines[since:] if found(what)), None)

        deadline = time.monotonic() + timeout_s
        with self._heard:
            while (line := look()) is None:
                left = deadline - time.monotonic()
                if left <= 0 or not self._listener.is_alive():
                    return look()
                self._heard.wait(min(left, 0.2))
            return line

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def tail(self) -> str:
        """The end of its stderr."""
        return self.log.read_bytes()[-_TAIL:].decode(errors="replace")

    def show_stacks(self) -> None:
        """Have the stacks of its threads at the end of its stderr. Only for a module that writes them at SIGUSR1."""
        self.process.send_signal(signal.SIGUSR1)
        self.says(_STACKS, _STACKS_S)

    def end(self, timeout_s: float = 10.0) -> int:
        """Its exit status. There are no more commands; killed when it does not end by then."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self._listener.join(timeout_s)
        self.process.stdout.close()
        return status


def environment(mark: str, folder: Path) -> dict[str, str]:
    """What a process of the run in this folder has, and all that it starts."""
    return {
        MARK: mark,
        clocks.VARIABLE: str(folder / clocks.FOLDER),
        "PYTHONPATH": os.pathsep.join([clocks.SITE, ROOT]),
    }


class Starter(Protocol):
    """Starts a module as a child of the run: its name, the module, arguments behind the run's directory."""

    def __call__(self, name: str, module: str, *arguments: str) -> Child: ...
