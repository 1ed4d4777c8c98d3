"""The connections of workers, and when each was heard last. On the loop of the pool only."""

from __future__ import annotations

from penstock.hosting.jobmanager.control_link import ControlLink
from penstock.model.messages import MasterHeartbeat
from penstock.model.messages.workers import WorkerId


class WorkerLinks:
    """Times are of the monotonic clock, in s."""

    def __init__(self) -> None:
        self._links: dict[WorkerId, ControlLink] = {}
        self._heard: dict[WorkerId, float] = {}
        self._beaten_at = 0.0

    def __contains__(self, worker_id: WorkerId) -> bool:
        return worker_id in self._links

    def __getitem__(self, worker_id: WorkerId) -> ControlLink:
        return self._links[worker_id]

    def heard(self, worker_id: WorkerId, control: ControlLink, now: float) -> bool:
        """Note a sign of life. Returns: whether it is the first."""
        self._heard[worker_id] = now
        is_first = worker_id not in self._links
        self._links.setdefault(worker_id, control)
        return is_first

    def silent_since(self, now: float) -> list[tuple[WorkerId, float]]:
        """Return for how long each has been silent."""
        return [(worker_id, now - heard_at) for worker_id, heard_at in self._heard.items()]

    def send(self, worker_id: WorkerId, message: object) -> None:
        """Dropped if it is not connected: its loss is told elsewhere."""
        link = self._links.get(worker_id)
        if link is not None:
            link.send(message)

    def beat(self, now: float, every_s: float) -> None:
        """Send a heartbeat to all, if it is due."""
        if now - self._beaten_at >= every_s:
            self._beaten_at = now
            for link in self._links.values():
                link.send(MasterHeartbeat())

    def forget(self, worker_id: WorkerId) -> None:
        """It is lost: close its connection."""
        self._heard.pop(worker_id, None)
        link = self._links.pop(worker_id, None)
        if link is not None:
            link.close()
