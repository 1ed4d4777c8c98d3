"""Answers of a TaskManager to questions of the driver, on threads of its own: none holds up a heartbeat or a task.

Knows the threads of tasks, and the folder of the log. Source: Flink TaskExecutor's methods behind its REST API.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final, assert_never

from penstock.engine.hosting.network.wire.messages import encode
from penstock.engine.hosting.os.thread_stacks import SampledThread, dump_threads, sample_stacks
from penstock.engine.hosting.os.worker_thread import WorkerThreads
from penstock.engine.hosting.reporting.logs.folder import LogFolder, NoSuchLog
from penstock.engine.hosting.taskmanager.task.thread import TaskThread
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages import (
    Answer,
    AskTaskManager,
    DumpThreads,
    ListLogs,
    Question,
    ReadLog,
    SampleStacks,
    StackSamples,
    TaskManagerAnswer,
)

_THREADS: Final = 4
MOST_QUESTIONS: Final = 32
"""Questions that may wait or be answered at once. Others are refused."""


class Answers:
    """`take` returns at once. `close` lets the answers under way go."""

    def __init__(
        self,
        resource_id: ResourceId,
        log_path: str,
        tasks: Callable[[], list[TaskThread]],
        send: Callable[[TaskManagerAnswer], None],
    ) -> None:
        """`log_path`: "": there is no log. `tasks`: those that are here now."""
        self._me = resource_id
        self._logs = LogFolder(log_path)
        self._tasks = tasks
        self._send = send
        self._workers = WorkerThreads("penstock-answers", _THREADS, capacity=MOST_QUESTIONS)

    def take(self, message: AskTaskManager) -> None:
        if not self._workers.put(lambda: self._send(self._answered(message))):
            text = f"{self._me} has {MOST_QUESTIONS} questions to answer already. Ask again later."
            self._send(TaskManagerAnswer(self._me, message.question_id, None, text))

    def close(self) -> None:
        self._workers.close(0.0, drops=True)

    def _answered(self, message: AskTaskManager) -> TaskManagerAnswer:
        number = message.question_id
        try:
            return TaskManagerAnswer(self._me, number, self._answer(message.question))
        except NoSuchLog as error:
            return TaskManagerAnswer(self._me, number, None, str(error), is_missing=True)
        except Exception as error:  # Whatever it is, the one who asks must not wait for it.
            text = f"{type(error).__name__}: {error}"
            return TaskManagerAnswer(self._me, number, None, text)

    def _answer(self, question: Question) -> Answer:
        match question:
            case ListLogs() | ReadLog():
                return self._logs.answer(question)
            case DumpThreads(most_frames):
                names = {task.thread_id: task.deployment.title for task in self._tasks()}
                return dump_threads(most_frames, {i: n for i, n in names.items() if i is not None})
            case SampleStacks():
                stacks = sample_stacks(question, self._sampled(question))
                return StackSamples(len(stacks), encode(stacks))
            case _:
                assert_never(question)

    def _sampled(self, question: SampleStacks) -> list[SampledThread]:
        wanted = set(question.attempts)
        native_ids = {one.ident: one.native_id for one in threading.enumerate()}
        found = []
        for task in self._tasks():
            ident = task.thread_id
            native_id = native_ids.get(ident)
            if task.attempt_id in wanted and ident is not None and native_id is not None:
                waits = partial(getattr, task, "is_waiting")
                found.append(SampledThread(task.attempt_id, ident, native_id, waits))
        return found
