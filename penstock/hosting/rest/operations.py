"""Operations that take their time: a request starts one and gets an id, and later requests ask how it went.

Each waits on a thread of its own. Results are kept for `rest.async.store-duration` after their end. Source: Flink
CompletedOperationCache, AsynchronousOperationResult.
"""

from __future__ import annotations

import re
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.hosting.rest.answers import RestError
from penstock.hosting.rest.java_throwable import serialized_throwable
from penstock.model.texts.redaction import without_credentials

MOST_AT_ONCE: Final = 100
_TRIGGER: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(slots=True)
class _Operation:
    """`subject`: of which only requests with the same subject may ask. `ended_s` None: it runs. `is_read`: its result was asked for."""

    subject: str
    is_read: bool = False
    result: dict[str, Any] | None = None
    ended_s: float | None = None


class Operations:
    """All operations of a driver. Any thread."""

    def __init__(self, keeps_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._keeps_s = keeps_s
        self._clock = clock
        self._lock = threading.Condition()
        self._known: dict[str, _Operation] = {}

    def start(
        self,
        subject: str,
        work: Callable[[], dict[str, Any]],
        trigger_id: str | None = None,
        failure_key: str = "failure-cause",
    ) -> str:
        """Start `work` on a thread, and return the id of the operation.

        `work` returns the fields of the result; if it raises, the result is the error under `failure_key`. An id that is known
        already starts nothing: the client has asked a second time. Raises RestError: the id is no id, or too many run.
        """
        key = (trigger_id or uuid.uuid4().hex).lower()
        if _TRIGGER.fullmatch(key) is None:
            raise RestError(400, f"triggerId is {trigger_id!r}, expected 32 hexadecimal digits.")
        with self._lock:
            self._expire()
            if key in self._known:
                return key
            if sum(one.ended_s is None for one in self._known.values()) >= MOST_AT_ONCE:
                raise RestError(503, f"{MOST_AT_ONCE} operations are running. Ask again later.")
            operation = self._known[key] = _Operation(subject)
        threading.Thread(
            target=self._run,
            args=(operation, work, failure_key),
            name=f"penstock-rest-{key[:6]}",
            daemon=True,
        ).start()
        return key

    def status(self, subject: str, trigger_id: str) -> dict[str, Any]:
        """Return the status in Flink's form. Raises RestError: there is no such operation."""
        with self._lock:
            self._expire()
            operation = self._known.get(trigger_id)
            if operation is None or operation.subject != subject:
                raise RestError(404, f"Operation not found under key: {trigger_id}")
            if operation.result is None:
                return {"status": {"id": "IN_PROGRESS"}, "operation": None}
            operation.is_read = True
            self._lock.notify_all()
            return {"status": {"id": "COMPLETED"}, "operation": operation.result}

    @property
    def is_any_known(self) -> bool:
        """Whether a result is kept, or an operation runs."""
        return bool(self._known)

    def wait_until_read(self, timeout_s: float) -> bool:
        """Wait until somebody has asked for every result. Returns whether that is so.

        A program that is stopped by a request ends at once; the client that asked for it still waits for its answer.
        """
        with self._lock:
            return self._lock.wait_for(self._are_all_read, timeout_s)

    def _are_all_read(self) -> bool:
        return all(one.is_read for one in self._known.values())

    def _run(
        self, operation: _Operation, work: Callable[[], dict[str, Any]], failure_key: str
    ) -> None:
        try:
            result = work()
        except Exception as error:  # It is the operation's result.
            result = {failure_key: throwable_of(error)}
        with self._lock:
            operation.result = result
            operation.ended_s = self._clock()

    def _expire(self) -> None:
        oldest_s = self._clock() - self._keeps_s
        for key, one in list(self._known.items()):
            if one.ended_s is not None and one.ended_s < oldest_s:
                del self._known[key]


def throwable_of(error: BaseException) -> dict[str, str]:
    """Return an error in the form that Flink's client needs."""
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    text = "".join(traceback.format_exception_only(error)).strip()
    return throwable(name, text)


def throwable(name: str, text: str) -> dict[str, str]:
    """Return an error of this class name and text in the form that Flink's client needs. Credentials in addresses are hidden."""
    shown = without_credentials(text)
    return {
        "class": name,
        "stack-trace": shown,
        "serialized-throwable": serialized_throwable(shown),
    }
