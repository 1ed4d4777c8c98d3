"""What a process of TaskManagers tells its supervisor: JSON lines on a pipe, which `child.py` reads.

{"progress": {start id: number}}                    often; left out when the pipe is full
{"ended": start id, "cause": ..., "was_refused": ...}   a TaskManager is over
{"used_up": cause}                                  the process must not serve anybody else
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from typing import Final

_MOST_OF_CAUSE: Final = 600
"""Characters. A line must fit the pipe's atomic size, so that it is written whole or not at all."""
_RETRY_S: Final = 0.01


class Reports:
    """The writing end. Any thread."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        os.set_blocking(pipe, False)

    def progress(self, numbers: Mapping[str, int]) -> None:
        """Tell a number for each TaskManager that rises when its mailboxes turn. Raises: OSError: the supervisor is gone."""
        self._write({"progress": dict(numbers)})

    def ended(self, start_id: str, cause: str, *, was_refused: bool = False) -> None:
        """Raises: OSError: the supervisor is gone."""
        report = {"ended": start_id, "cause": cause[:_MOST_OF_CAUSE], "was_refused": was_refused}
        self._write_surely(report)

    def used_up(self, cause: str) -> None:
        """Raises: OSError: the supervisor is gone."""
        self._write_surely({"used_up": cause[:_MOST_OF_CAUSE]})

    def _write_surely(self, report: Mapping[str, object]) -> None:
        while not self._write(report):
            time.sleep(_RETRY_S)  # A supervisor that was stopped does not read.

    def _write(self, report: Mapping[str, object]) -> bool:
        with self._lock:
            try:
                os.write(self._pipe, json.dumps(report).encode() + b"\n")
            except BlockingIOError:
                return False
        return True
