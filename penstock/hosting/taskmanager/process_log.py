"""The log of a TaskManager's process: it goes where Spark keeps the stderr of the executor that runs it.

Its own stderr does not: what stands there is taken for its last words, and what user code writes goes to the driver.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Final

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class DescriptorHandler(logging.Handler):
    """Whole lines, unbuffered. A log that cannot be written is no reason to disturb anybody."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record) + "\n"
        with contextlib.suppress(OSError):  # its reader is gone
            os.write(self._descriptor, line.encode("utf-8", "backslashreplace"))


def install(descriptor: int | None) -> None:
    """From INFO on, what Penstock logs is written there; None: there is no such log. Warnings go to stderr besides, which is
    to say to the program: there they go where nobody configures logging.
    """
    if logging.lastResort is not None:
        logging.getLogger("penstock").addHandler(logging.lastResort)
    if descriptor is not None:
        log_to(descriptor)


def log_to(descriptor: int) -> logging.Handler:
    handler = DescriptorHandler(descriptor)
    handler.setFormatter(logging.Formatter(FORMAT))
    logger = logging.getLogger("penstock")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    return handler
