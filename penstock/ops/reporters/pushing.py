"""A reporter that does something in intervals, on a thread of its own. Source: Flink MetricRegistryImpl's ReporterTask."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

_LOG: Final = logging.getLogger(__name__)


class PushingReporter:
    """Calls `report` after each interval, counted from the end of the last call, and `end` once at its end.

    What a call raises is logged; the next one comes all the same.
    """

    def __init__(
        self,
        name: str,
        interval_s: float,
        report: Callable[[], None],
        end: Callable[[], None] | None = None,
    ) -> None:
        self._name = name
        self._interval_s = interval_s
        self._report = report
        self._end = end
        self._is_ended = threading.Event()
        self.thread = threading.Thread(
            target=self._run, name=f"penstock-reporter-{name}", daemon=True
        )
        self.thread.start()

    def stop(self) -> None:
        """End it, and wait for the call that is under way."""
        self._is_ended.set()
        self.thread.join()
        if self._end is not None:
            self._safely(self._end)

    def _run(self) -> None:
        while not self._is_ended.wait(self._interval_s):
            self._safely(self._report)

    def _safely(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            # Whatever it is, a job does not end because nobody takes its metrics.
            _LOG.warning("reporter=%s NOT REPORTED cause=%s", self._name, error)
