"""A thread that runs Spark jobs for another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pyspark import SparkContext


class SparkThread(threading.Thread):
    """A daemon with Spark's local properties of the thread that makes it: the pool of the scheduler, for example.

    `run_jobs`: runs on it. `refuse`: called on it instead, with the error, if the context was stopped before it could begin. PySpark's
    InheritableThread raises then where nobody sees it.
    """

    def __init__(
        self,
        context: SparkContext,
        run_jobs: Callable[[], None],
        refuse: Callable[[Exception], None],
        name: str,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._spark_context = context
        self._properties: Any = None
        self._error: Exception | None = None
        try:
            self._properties = context._jsc.sc().getLocalProperties().clone()
        except Exception as error:  # Whatever Py4J raises: the context was stopped.
            self._error = error
        self._run_jobs = run_jobs
        self._refuse = refuse

    def run(self) -> None:
        if self._error is None:
            try:
                self._spark_context._jsc.sc().setLocalProperties(self._properties)
            except Exception as error:  # As above, meanwhile.
                self._error = error
        if self._error is None:
            self._run_jobs()
        else:
            self._refuse(self._error)
