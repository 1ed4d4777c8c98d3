"""Keyed state that detects access from threads that must not touch it. For debugging; access from the task's own thread works as usual.

Does not know threads: the host finds out who asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.engine.runtime.state.heap import HeapKeyedStateBackend


class CheckedKeyedStateBackend(HeapKeyedStateBackend):
    """A backend that calls `check` at every access to a state, because each looks up the current namespace. `check`
    raises if it must.
    """

    def __init__(
        self,
        max_parallelism: int = 128,
        now_ms: Callable[[], int] = lambda: 0,
        *,
        is_int32: bool = False,
        check: Callable[[], None],
    ) -> None:
        self._check = check
        self._namespace: Any = None
        super().__init__(max_parallelism, now_ms, is_int32=is_int32)

    @property
    def namespace(self) -> Any:
        """The current namespace. A state looks it up before anything else."""
        self._check()
        return self._namespace

    @namespace.setter
    def namespace(self, namespace: Any) -> None:
        self._check()
        self._namespace = namespace
