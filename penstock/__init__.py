"""Flink's runtime as a Python library on the Spark cluster that you already have."""

# ruff: file-ignore[non-empty-init-module] - only here is it certain to run
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.common.running_jobs import RunningJob


class _ErrorsOnly(logging.Handler):
    """For loggers whose warnings the console shows too. Errors go to stderr, unless the program has set up logging."""

    def handle(self, record: logging.LogRecord) -> bool:
        is_error = record.levelno >= logging.ERROR
        if is_error and logging.lastResort is not None and not logging.root.handlers:
            logging.lastResort.handle(record)
        return is_error


for _room in ("penstock.hosting.jobmanager", "penstock.hosting.taskmanager"):
    logging.getLogger(_room).addHandler(_ErrorsOnly())


def jobs() -> "list[RunningJob]":
    """Return the jobs that programs of this process have started and that have not ended, oldest first.

    Each has a name, a status, slots and a time of its start; `cancel()` ends it.
    """
    from penstock.common.running_jobs import jobs as found

    return found()


__version__ = "0.1.0"
