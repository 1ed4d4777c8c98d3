"""The driver's side of the probes: listens where a job's JobManager would, and lets tasks dial each
other.

When the expected number of tasks has dialled, or the time is over, each task is told one task at
every other place, and dials it. All tasks are released when all have done so.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Final, Self

from penstock.hosting.doctor.lines import Lines
from penstock.hosting.wire.addresses import CONTROL_PORT, Endpoint, listen
from penstock.hosting.wire.dialling import Proven
from penstock.hosting.wire.greeter import Greeter
from penstock.hosting.wire.handshake import ROLE_PROBE, Credentials
from penstock.hosting.wire.invitations import Invitations
from penstock.model.errors import ExternalError

_MOST_PEERS: Final = 64


class Meeting:
    """A context manager, which listens while it is entered. `port`: the port that tasks dial."""

    def __init__(
        self,
        endpoint: Endpoint,
        admission: tuple[Credentials, Invitations],
        tasks: int,
        wait_s: float,
    ) -> None:
        """`admission`: the credentials, and who gets them. `tasks`: how many are expected; they wait at most `wait_s` for each other. Raises:
        ExternalError: no port is free.
        """
        server = listen(endpoint, CONTROL_PORT)
        self.port: int = endpoint.port or server.getsockname()[1]
        credentials, invitations = admission
        self._greeter = Greeter(
            [server], credentials, ROLE_PROBE, self._greeted, invitations=invitations
        )
        self._tasks = tasks
        self._wait_s = wait_s
        self._changed = threading.Condition()
        self._told: dict[int, dict[str, Any]] = {}
        self._done = 0
        self._threads: list[threading.Thread] = []
        self._is_over = False

    def __enter__(self) -> Self:
        self._greeter.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._greeter.close()
        for thread in list(self._threads):
            thread.join()

    def _start(self, call: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=call, args=arguments, name="penstock-meeting", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _greeted(self, proven: Proven) -> None:
        self._start(self._serve, Lines(proven))

    def _serve(self, lines: Lines) -> None:
        with contextlib.suppress(OSError, ExternalError), lines.sock:
            lines.sock.settimeout(self._wait_s)
            told = lines.receive()
            if told is not None:
                self._introduce(told, lines)

    def _introduce(self, told: dict[str, Any], lines: Lines) -> None:
        with self._changed:
            self._told[told["task"]] = told
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._is_over or len(self._told) >= self._tasks, self._wait_s
            )
            peers = self._peers_of(told)
        lines.send(peers)
        lines.receive()
        with self._changed:
            self._done += 1
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._is_over or self._done >= len(self._told), self._wait_s
            )

    def _peers_of(self, told: dict[str, Any]) -> list[list[Any]]:
        """Return [task, host, port] of one task at each place other than its own."""
        by_place = {one["place"]: one for one in self._told.values() if one is not told}
        return [[one["task"], *one["data"]] for one in list(by_place.values())[:_MOST_PEERS]]
