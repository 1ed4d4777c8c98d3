"""Questions to TaskManagers: any thread asks, the JobManager's loop sends and takes answers.

Each question gets an answer or an error: its TaskManager is gone, silent, or has too much to answer. The last lines of
the logs of TaskManagers that have ended are kept here, and asked for like those of a running one.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import Any, Final

from penstock.engine.hosting.jobmanager.control_server import Links
from penstock.engine.hosting.reporting.logs.folder import NoSuchLog
from penstock.engine.model import messages
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.ids import ResourceId

ANSWER_TIMEOUT_S: Final = 10.0
"""How long a TaskManager may take to answer, beyond what the question itself takes. Flink: pekko.ask.timeout."""
MOST_OPEN: Final = 1000
"""Questions of one job that wait for their answers. A further one is refused."""
MOST_KEPT_BYTES: Final = 16 << 20
"""Of the last lines of all TaskManagers that have ended. Those that ended first go first."""
LAST_LINES_NAME: Final = "last-lines.log"


class NoAnswer(ExternalError):
    """A TaskManager is gone or silent, or could not answer."""


@dataclass(slots=True)
class _Open:
    resource_id: ResourceId
    future: Future[Any]
    until_ms: int


class Questions:
    """`ask` may be called from any thread, all else only on the JobManager's loop."""

    def __init__(
        self, links: Links, soon: Callable[[Callable[[], None]], None], now_ms: Callable[[], int]
    ) -> None:
        """`soon`: makes a call on the loop, unless the loop has ended."""
        self._links = links
        self._soon = soon
        self._now_ms = now_ms
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._unsent: set[Future[Any]] = set()
        self._is_closed = False
        self._open: dict[int, _Open] = {}
        self._last_lines: OrderedDict[ResourceId, messages.LogPiece] = OrderedDict()

    def ask(
        self,
        resource_id: ResourceId,
        question: messages.Question,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> Future[Any]:
        """Ask one TaskManager. Returns at once; the future has the Answer that belongs to the question.

        The future raises NoAnswer, or NoSuchLog for a file that is not there. `timeout_s`: the time of stack samples is
        added to it.
        """
        future: Future[Any] = Future()
        if isinstance(question, messages.SampleStacks):
            timeout_s += question.samples * question.delay_ms / 1000
        with self._lock:
            is_over = self._is_closed
            if not is_over:
                self._unsent.add(future)
        if is_over:
            # What is kept of the ended ones is changed no more.
            self._answer_for_the_ended(resource_id, question, future)
        else:
            # A call that the loop does not make any more is answered by `close`.
            self._soon(lambda: self._send(resource_id, question, future, timeout_s))
        return future

    # ------------------------------------------------------------------ on the loop

    def _send(
        self,
        resource_id: ResourceId,
        question: messages.Question,
        future: Future[Any],
        timeout_s: float,
    ) -> None:
        with self._lock:
            self._unsent.discard(future)
        if resource_id not in self._links:
            self._answer_for_the_ended(resource_id, question, future)
        elif len(self._open) >= MOST_OPEN:
            text = f"{MOST_OPEN} questions to TaskManagers wait for answers. Ask again later."
            _fail(future, NoAnswer(text))
        else:
            number = next(self._numbers)
            until_ms = self._now_ms() + int(timeout_s * 1000)
            self._open[number] = _Open(resource_id, future, until_ms)
            self._links.send(resource_id, messages.AskTaskManager(resource_id, number, question))

    def answered(self, message: messages.TaskManagerAnswer) -> None:
        """A TaskManager has answered. An answer that comes too late is dropped."""
        found = self._open.get(message.question_id)
        if found is None or found.resource_id != message.resource_id:
            return
        del self._open[message.question_id]
        if message.answer is not None:
            _set(found.future, message.answer)
        elif message.is_missing:
            _fail(found.future, NoSuchLog(message.failure))
        else:
            _fail(found.future, NoAnswer(f"{message.resource_id}: {message.failure}"))

    def ended(self, message: messages.ProcessEnded, at_ms: int) -> None:
        """Keep the last lines of a TaskManager. `at_ms`: since 1970."""
        if not message.last_lines:
            return
        file = messages.LogFile(LAST_LINES_NAME, len(message.last_lines), at_ms)
        self._last_lines[message.resource_id] = messages.LogPiece(file, 0, message.last_lines)
        while sum(one.file.size for one in self._last_lines.values()) > MOST_KEPT_BYTES:
            self._last_lines.popitem(last=False)

    def tick(self) -> None:
        """Fail the questions to TaskManagers that are gone or silent. Called every 100 ms."""
        if not self._open:
            return
        now_ms = self._now_ms()
        for number, one in list(self._open.items()):
            if one.resource_id not in self._links:
                self._drop(number, f"TaskManager {one.resource_id} ended before it answered")
            elif now_ms >= one.until_ms:
                self._drop(number, f"TaskManager {one.resource_id} did not answer in time")

    def close(self) -> None:
        """The loop has ended. From now on only last lines are given."""
        with self._lock:
            self._is_closed = True
            unsent, self._unsent = self._unsent, set()
        text = "the job ended before its TaskManager answered"
        for future in unsent:
            _fail(future, NoAnswer(text))
        for number in list(self._open):
            self._drop(number, text)

    def _drop(self, number: int, why: str) -> None:
        _fail(self._open.pop(number).future, NoAnswer(why))

    def _answer_for_the_ended(
        self, resource_id: ResourceId, question: messages.Question, future: Future[Any]
    ) -> None:
        kept = self._last_lines.get(resource_id)
        try:
            _set(future, _of_last_lines(resource_id, kept, question))
        except ExternalError as error:
            _fail(future, error)


def _of_last_lines(
    resource_id: ResourceId, kept: messages.LogPiece | None, question: messages.Question
) -> messages.Answer:
    """Answer for a TaskManager that is not here. Raises: NoAnswer, NoSuchLog."""
    if kept is None or not isinstance(question, messages.ListLogs | messages.ReadLog):
        raise NoAnswer(
            f"this job has no TaskManager {resource_id} now. Ask for the list of its TaskManagers."
        )
    if isinstance(question, messages.ListLogs):
        return messages.LogList((kept.file,))
    name = question.name.rpartition("/")[2]
    if question.is_stdout or name not in {"", kept.file.name}:
        raise NoSuchLog(
            f"TaskManager {resource_id} has ended. Only the last lines of its log are kept, as "
            f"{LAST_LINES_NAME}."
        )
    begin = question.offset if question.offset >= 0 else max(0, kept.file.size + question.offset)
    return messages.LogPiece(kept.file, begin, kept.data[begin : begin + max(0, question.length)])


def _set(future: Future[Any], answer: messages.Answer) -> None:
    with contextlib.suppress(InvalidStateError):  # Nobody waits any more.
        future.set_result(answer)


def _fail(future: Future[Any], error: ExternalError) -> None:
    with contextlib.suppress(InvalidStateError):
        future.set_exception(error)
