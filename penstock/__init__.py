"""Flink's runtime as a Python library on the Spark cluster that you already have."""

# ruff: file-ignore[non-empty-init-module] - only here is it certain to run
import importlib
import logging
from typing import Any


class _ErrorsOnly(logging.Handler):
    """For loggers whose warnings the console shows too. Errors go to stderr, unless the program has set up logging."""

    def handle(self, record: logging.LogRecord) -> bool:
        is_error = record.levelno >= logging.ERROR
        if is_error and logging.lastResort is not None and not logging.root.handlers:
            logging.lastResort.handle(record)
        return is_error


for _room in ("batch", "jobmanager", "taskmanager"):
    logging.getLogger(f"penstock.hosting.{_room}").addHandler(_ErrorsOnly())


def jobs() -> list[Any]:
    """Return the jobs that programs of this process have started and that have not ended, oldest first.

    Each is a `penstock.common.running_jobs.RunningJob`: it has a name, a status, slots and the time of its start, and
    `cancel()` ends it.
    """
    # By name: executors import this package without its API.
    found: list[Any] = importlib.import_module("penstock.common.running_jobs").jobs()
    return found


__version__ = "0.1.0"
