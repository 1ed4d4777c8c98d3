"""What Kubernetes says of executors that do not run: no node has room for a pod, its image is missing, its node is lost.

Spark only waits for them. Its own client, in the driver's JVM, is asked.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
from collections import Counter
from typing import Any, Final

from pyspark import SparkContext

from penstock.engine.model.texts.amounts import counted

_OF_EXECUTORS: Final = ("spark-role", "executor")
_APPLICATION: Final = "spark-app-selector"
_TEXT: Final = 300
_LATE: Final = dt.timedelta(seconds=5)
_REMEDY: Final = (
    "Spark waits until the pods are gone. Remove the node, or delete them with `kubectl delete pod "
    "--force`"
)


class ExecutorPods:
    """The pods of one Spark application's executors; none where its master is not Kubernetes."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._is_kubernetes = str(context.master).startswith("k8s")
        self._found = ""
        self._asker: threading.Thread | None = None

    def reason(self, wait_s: float) -> str:
        """Return why executors do not run, as far as it is known `wait_s` seconds later; "": nothing is known. Never raises."""
        if self._is_kubernetes:
            if self._asker is None or not self._asker.is_alive():
                self._asker = threading.Thread(target=self._ask, name="pods", daemon=True)
                self._asker.start()
            self._asker.join(wait_s)
        return self._found

    def _ask(self) -> None:
        found = ""
        with contextlib.suppress(Exception):  # Py4J's; the session was stopped; another Spark.
            reasons = Counter(filter(None, map(_reason, self._pods()))).most_common(1)
            found = "".join(
                f"{counted(pods, 'pod')} {text[:_TEXT].rstrip('.')}" for text, pods in reasons
            )
        self._found = found

    def _pods(self) -> list[Any]:
        """The field is the backend's own. A client of ours would need Spark's settings of authentication again."""
        backend = self._context._jsc.sc().schedulerBackend()
        field = backend.getClass().getDeclaredField("kubernetesClient")
        field.setAccessible(True)
        namespace = self._context.getConf().get("spark.kubernetes.namespace", "default")
        pods = field.get(backend).pods().inNamespace(namespace)
        application = pods.withLabel(_APPLICATION, self._context.applicationId)
        return list(application.withLabel(*_OF_EXECUTORS).list().getItems())


def _reason(pod: Any) -> str:
    """Return why the pod does not run; "": it does, or starts."""
    status, ends = pod.getStatus(), pod.getMetadata().getDeletionTimestamp()
    if ends is not None:
        late = dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(ends)
        node = pod.getSpec().getNodeName()
        return "" if late < _LATE else f"Terminating, but {node} does not answer: {_REMEDY}"
    if status.getPhase() != "Pending":
        return ""
    for condition in status.getConditions():
        if condition.getType() == "PodScheduled" and condition.getStatus() == "False":
            return f"Pending: {condition.getReason()}: {condition.getMessage()}"
    for container in status.getContainerStatuses():
        waiting = container.getState().getWaiting()
        if waiting is not None and waiting.getMessage():
            return f"Pending: {waiting.getReason()}: {waiting.getMessage()}"
    return ""
