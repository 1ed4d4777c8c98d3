"""Questions of the driver to one TaskManager, and their answers. Plain data.

An answer is bounded: a large file is asked for piece by piece. Source: the calls of Flink's TaskExecutorGateway that
serve its REST API (requestFileUploadByName, requestThreadDump, requestThreadInfoSamples).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.engine.model.ids import NO_TOKEN, AttemptId, FencingToken, ResourceId

MOST_OF_PIECE: Final = 1 << 20
"""Bytes of a file in one answer."""


@dataclass(frozen=True, slots=True)
class ListLogs:
    """(wire) Which files lie in the folder of the log. The answer is a LogList."""


@dataclass(frozen=True, slots=True)
class ReadLog:
    """(wire) A piece of a file in the folder of the log. The answer is a LogPiece.

    `name`: only its last component counts; "" means the log itself, or with `is_stdout` what tasks have printed.
    `offset`: in bytes; a negative one counts from the end. `length`: at most `MOST_OF_PIECE` bytes are given.
    """

    name: str = ""
    offset: int = 0
    length: int = MOST_OF_PIECE
    is_stdout: bool = False


@dataclass(frozen=True, slots=True)
class DumpThreads:
    """(wire) What every thread does. The answer is a ThreadDump. `most_frames`: of one thread."""

    most_frames: int = 50


@dataclass(frozen=True, slots=True)
class SampleStacks:
    """(wire) What the threads of these tasks do, looked at `samples` times. The answer are StackSamples.

    `depth`: how many of the innermost frames are kept. Attempts that are not here, or end meanwhile, have no samples.
    """

    attempts: tuple[AttemptId, ...]
    samples: int
    delay_ms: int
    depth: int


Question: TypeAlias = ListLogs | ReadLog | DumpThreads | SampleStacks


@dataclass(frozen=True, slots=True)
class LogFile:
    """(wire) `size`: in bytes. `mtime_ms`: of its last change, since 1970."""

    name: str
    size: int
    mtime_ms: int


@dataclass(frozen=True, slots=True)
class LogList:
    """(wire) By name."""

    files: tuple[LogFile, ...]


@dataclass(frozen=True, slots=True)
class LogPiece:
    """(wire) `offset`: of the first byte. `file`: as it was when it was read."""

    file: LogFile
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ThreadText:
    """(wire) One thread and its stack as a text, in the form of Java's ThreadInfo."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class ThreadDump:
    """(wire)"""

    threads: tuple[ThreadText, ...]


@dataclass(frozen=True, slots=True)
class SampledStack:
    """(wire) A stack that was seen. `frames`: the outermost first, as module.function:line. Both numbers count samples."""

    attempt_id: AttemptId
    frames: tuple[str, ...]
    on_cpu: int
    off_cpu: int


@dataclass(frozen=True, slots=True)
class StackSamples:
    """(wire) `payload`: a tuple of SampledStack, as `engine/hosting/network/wire/messages.py` encodes it. `stacks`: how many.

    Only who looks at them opens them, because that takes longer than the JobManager's loop may stand still.
    """

    stacks: int
    payload: bytes


Answer: TypeAlias = LogList | LogPiece | ThreadDump | StackSamples


@dataclass(frozen=True, slots=True)
class AskTaskManager:
    """(wire) `question_id`: comes back with the answer."""

    resource_id: ResourceId
    question_id: int
    question: Question
    fencing_token: FencingToken = NO_TOKEN


@dataclass(frozen=True, slots=True)
class TaskManagerAnswer:
    """(wire) `answer` None: it could not be answered; `failure` says why. `is_missing`: there is no such file."""

    resource_id: ResourceId
    question_id: int
    answer: Answer | None
    failure: str = ""
    is_missing: bool = False
