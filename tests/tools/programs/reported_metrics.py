"""An observer that keeps what tasks report of themselves, and looks it up as REST would."""

from __future__ import annotations

import threading

from penstock.engine.hosting.observer import JobObserver
from penstock.engine.model.messages import MetricsReport
from penstock.engine.model.metrics import Value
from penstock.ops.metrics.entities import SubtaskScope, VertexScope
from penstock.ops.metrics.store import MetricStore


class Reported(JobObserver):
    """All reports of a job. Look when the job has ended, or call `await_report` first."""

    def __init__(self) -> None:
        self.store = MetricStore()
        self.reports = 0
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)

    def on_metrics_report(self, report: MetricsReport) -> None:
        with self._news:
            self.reports += 1
            self.store.report(report.payload)
            self._news.notify_all()

    def await_report(self, is_wanted, timeout_s: float = 30) -> None:
        """Wait until a report has made it true."""
        with self._news:
            assert self._news.wait_for(is_wanted, timeout_s)

    def vertices(self) -> dict[str, VertexScope]:
        """The vertices by name."""
        return {
            one.place.variables["task_name"]: VertexScope(
                one.place.variables["job_id"], one.place.variables["task_id"]
            )
            for one in self.store.metrics(with_ended=True)
            if "task_id" in one.place.variables
        }

    def vertex(self, begin: str) -> VertexScope:
        """The vertex whose name begins so."""
        (found,) = (scope for name, scope in self.vertices().items() if name.startswith(begin))
        return found

    def values(self, begin: str, subtask: int = 0) -> dict[str, str]:
        """What REST shows of a subtask."""
        vertex = self.vertex(begin)
        return self.store.values(SubtaskScope(vertex.job_id, vertex.vertex_id, subtask))

    def sum(self, begin: str, rest_id: str) -> int:
        """A whole number of all subtasks of a vertex."""
        vertex = self.vertex(begin)
        found = self.store.values(vertex).items()
        return sum(int(text) for one, text in found if one.partition(".")[2] == rest_id)

    def value(self, begin: str, rest_id: str, subtask: int = 0) -> Value | None:
        vertex = self.vertex(begin)
        scope = SubtaskScope(vertex.job_id, vertex.vertex_id, subtask)
        return self.store.value(scope, rest_id)
