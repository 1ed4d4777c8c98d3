"""The places that Spark has for workers, and who waits for one. They outlive a driver."""

from __future__ import annotations

from collections.abc import Callable

Seated = Callable[[], None]


class Places:
    """First come, first served."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._taken: set[object] = set()
        self._waiting: dict[object, Seated] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def waits(self, worker: object) -> bool:
        return worker in self._waiting

    def ask(self, worker: object, seated: Seated) -> None:
        """`seated`: called when there is a place, at once if there is one now."""
        self._waiting[worker] = seated
        self._serve()

    def give_back(self, worker: object) -> None:
        """The worker is over, or wants no place any more."""
        self._waiting.pop(worker, None)
        self._taken.discard(worker)
        self._serve()

    def _serve(self) -> None:
        while self._waiting and len(self._taken) < self.count:
            worker = next(iter(self._waiting))
            seated = self._waiting.pop(worker)
            self._taken.add(worker)
            seated()
