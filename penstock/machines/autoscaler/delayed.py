"""Scale-downs that wait: a vertex shrinks when this has been asked for long enough, to the largest parallelism of that time.

Knows no clock. Source: DelayedScaleDown of Flink's Kubernetes operator (docs/spec/autoscaler.md#delayed-scale-down).
"""

from __future__ import annotations

from penstock.model.ids import VertexId


class DelayedScaleDowns:
    """Per vertex: when it was first asked for, and what was asked for since. `interval_ms`: how long it waits; 0: not at all."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._first_ms: dict[VertexId, int] = {}
        self._asked: dict[VertexId, list[tuple[int, int]]] = {}

    def ask(self, vertex_id: VertexId, now_ms: int, parallelism: int) -> int | None:
        """Record a target. Return the parallelism to shrink to; None: not yet."""
        first_ms = self._first_ms.setdefault(vertex_id, now_ms)
        begin_ms = now_ms - self._interval_ms
        asked = [one for one in self._asked.get(vertex_id, ()) if one[0] >= begin_ms]
        asked.append((now_ms, parallelism))
        # Only what is larger than all that came later can become the largest.
        later, kept = 0, []
        for one in reversed(asked):
            if one[1] > later:
                later = one[1]
                kept.append(one)
        self._asked[vertex_id] = kept[::-1]
        return later if first_ms <= begin_ms else None

    def waits_since(self, vertex_id: VertexId) -> int | None:
        """Return when it was first asked for, in ms; None: it is not."""
        return self._first_ms.get(vertex_id)

    def forget(self, vertex_id: VertexId) -> None:
        self._first_ms.pop(vertex_id, None)
        self._asked.pop(vertex_id, None)

    def forget_all(self) -> None:
        self._first_ms.clear()
        self._asked.clear()
