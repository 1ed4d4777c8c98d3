"""Flink's runtime as a Python library on the Spark cluster that you already have."""

# ruff: file-ignore[non-empty-init-module] - only here is it certain to run
import importlib as _importlib
import logging as _logging
from typing import Any as _Any

__version__ = "0.1.0"
# Executors import this package without its API, so a name is imported when it is asked for.
_PLACES = {
    "MiniCluster": "penstock.testing",
    "StreamExecutionEnvironment": "penstock.datastream",
    "Types": "penstock.common",
    "WatermarkStrategy": "penstock.common",
    "col": "penstock.datastream.columns",
    "jobs": "penstock.common.running_jobs",
}


def __getattr__(name: str) -> _Any:
    if name in _PLACES:
        return getattr(_importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_PLACES.keys() - {"jobs"})


class _ErrorsOnly(_logging.Handler):
    """For loggers whose warnings the console shows too. Errors go to stderr, unless the program has set up logging."""

    def handle(self, record: _logging.LogRecord) -> bool:
        is_error = record.levelno >= _logging.ERROR
        if is_error and _logging.lastResort is not None and not _logging.root.handlers:
            _logging.lastResort.handle(record)
        return is_error


for _room in ("spark.batch", "jobmanager", "taskmanager"):
    _logging.getLogger(f"penstock.engine.hosting.{_room}").addHandler(_ErrorsOnly())
