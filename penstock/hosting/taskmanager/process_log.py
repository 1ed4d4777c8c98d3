"""The log of a TaskManager's process. It goes to the stderr of the Spark executor, which Spark
keeps.

It does not go to the process's own stderr: that is reported as its last words. The output of user
code goes to the driver.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Final

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class DescriptorHandler(logging.Handler):
    """Writes whole lines, unbuffered. Errors are ignored: a log that cannot be written must not disturb anything."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record) + "\n"
        with contextlib.suppress(OSError):  # Its reader is gone.
            os.write(self._descriptor, line.encode("utf-8", "backslashreplace"))


def install(descriptor: int | None) -> None:
    """Log Penstock's messages from INFO on to this descriptor; None: there is no such log.

    Warnings also go to stderr and so to the program, as they do wherever logging is not configured.
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
