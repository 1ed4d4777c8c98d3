"""The queue of a WebhookSource: threads of requests put records in, the reader takes them out.

Records are numbered as they come into the queue. A request that waits for a checkpoint waits until its last number is covered.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.common.extras import extra
from penstock.common.serialization import DeserializationSchema
from penstock.connectors.api.base import Batch, QueuePoller, RowBatch
from penstock.connectors.api.messaging.records import NO_RECORDS, batch_of
from penstock.connectors.http.webhook_settings import ListenSettings, WebhookRequest
from penstock.engine.model.errors import ExternalError
from penstock.engine.runtime.records.dead_letters import Malformed, MarkedRows

if TYPE_CHECKING:
    from penstock.engine.hosting.network.http_server import HttpServer

_ROWS: Final = 1000
_WAIT_S: Final = 0.5
_PORT_PATIENCE_S: Final = 15.0
_PAUSE_S: Final = 0.1
_END_S: Final = 5.0
_SHOWN: Final = 300


class WebhookPoller(QueuePoller):
    """Listens while it is open. The position is the number of the last record that `poll` gave."""

    def __init__(
        self,
        settings: ListenSettings,
        body: Callable[[WebhookRequest], Sequence[Any]],
        schema: DeserializationSchema | None,
        where: str,
    ) -> None:
        super().__init__()
        self.settings = settings
        self._body = body
        self._schema = schema
        self._where = where
        self._bytes = 0
        self._came = self._given = self._covered = 0
        self._is_closed = False
        self._decoding = threading.Lock()
        self._server: HttpServer | None = None

    def open(self, position: int | None) -> None:
        """Take the port. Raises: ExternalError: another process keeps it; ConfigurationError: this Python has no HTTP server."""
        for package in ("uvicorn", "starlette"):
            extra(package, "webhook", self._where)
        from penstock.connectors.http.webhook_server import server_of

        self._came = self._given = self._covered = position or 0
        self._server = server_of(self.settings, self.take)
        run, listening = self._server.run, [self._bound()]
        self._thread = threading.Thread(target=run, args=(listening,), daemon=True)
        self._thread.start()

    def poll(self) -> Sequence[Any] | Batch:
        taken = self.taken(_ROWS, _WAIT_S)
        with self.changed:
            self._given += len(taken)
            self._bytes -= sum(size for _, size in taken)
        if not taken:
            return []
        values = [value for value, _ in taken]
        if self._schema is None:
            return RowBatch(values)
        return self._decoded(values) or NO_RECORDS

    def position(self) -> int:
        return self._given

    def acknowledge(self, position: int) -> None:
        with self.changed:
            self._covered = max(self._covered, position)
            self.changed.notify_all()

    def close(self) -> None:
        """Requests that wait for a checkpoint are answered with 503."""
        with self.changed:
            self._is_closed = True
            self.changed.notify_all()
        if self._server is not None:
            self._server.should_exit = True
            self._thread.join(_END_S)

    # ------------------------------------------------------------------ threads of requests

    def take(self, request: WebhookRequest) -> tuple[int, str]:
        """The status and the text of the answer. It may wait for a checkpoint."""
        try:
            found = list(self._body(request))
            if self._schema is not None and self.settings.refuses_malformed:
                self._check(found)
        except Exception as error:  # the user's function, the schema, or what they were given
            return 400, f"{type(error).__name__}: {error!s:.300}"
        with self.changed:
            if self._is_closed or not self._has_room(found, request):
                return 503, "the job does not keep up"
            self._came += len(found)
            mine = self._came
            share = len(request.body) // max(len(found), 1)
            self.waiting.extend((value, share) for value in found)
            self._bytes += share * len(found)
            self.changed.notify_all()
            if not self.settings.waits_for_checkpoint:
                return 200, ""
            self.changed.wait_for(
                lambda: self._covered >= mine or self._is_closed, self.settings.answer_timeout_s
            )
            if self._covered >= mine:
                return 200, ""
        return 503, "no checkpoint was complete in time"

    def _has_room(self, found: Sequence[Any], request: WebhookRequest) -> bool:
        """One that alone is more than all that may wait has room when nothing else waits."""
        if not self.waiting:
            return True
        settings = self.settings
        return (
            len(self.waiting) + len(found) <= settings.queue_records
            and self._bytes + len(request.body) <= settings.queue_bytes
        )

    def _check(self, values: Sequence[Any]) -> None:
        """Raises: ValueError: the schema cannot read one of them."""
        with self._decoding:
            batch = self._decoded(values)
        values = batch.values if isinstance(batch, MarkedRows) else ()
        bad = next((value for value in values if isinstance(value, Malformed)), None)
        if bad is not None:
            raise ValueError(f"a record cannot be read: {bad.error!s:.{_SHOWN}}")

    def _decoded(self, values: Sequence[Any]) -> Batch | None:
        assert self._schema is not None
        return batch_of(values, None, self._schema, lambda _: "a record of a request")

    def _bound(self) -> socket.socket:
        """A former attempt of the subtask may still have the port."""
        settings = self.settings
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        deadline_s = time.monotonic() + _PORT_PATIENCE_S
        while True:
            try:
                return socket.create_server((settings.host, settings.port), family=family)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > deadline_s:
                    raise ExternalError(
                        f"{self._where}: cannot listen on {settings}: {error}. Set another port or "
                        "host with set_address."
                    ) from error
            time.sleep(_PAUSE_S)
