"""Requests for logs, thread dumps and flame graphs: what only the processes themselves can report.

They wait for a TaskManager, so the server runs them on threads of their own. Source: Flink JobManagerLogFileHandler,
TaskManagerLogFileHandler, TaskManagerThreadDumpHandler, JobVertexFlameGraphHandler.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from urllib.parse import quote

from penstock.engine.hosting.jobmanager.flame_graphs import GraphType
from penstock.engine.hosting.jobmanager.handle import JobHandle
from penstock.engine.hosting.jobmanager.questions import NoAnswer
from penstock.engine.hosting.os.thread_stacks import dump_threads
from penstock.engine.hosting.reporting.logs.driver import log_folder
from penstock.engine.hosting.reporting.logs.folder import NoSuchLog
from penstock.engine.model.ids import ResourceId, VertexId, taskmanager_name
from penstock.engine.model.messages.questions import (
    MOST_OF_PIECE,
    LogList,
    LogPiece,
    ReadLog,
    ThreadDump,
)
from penstock.engine.model.options.task import StackOptions
from penstock.ops.rest.answers import TEXT, Answer, Asked, RestError, bad_parameter
from penstock.ops.rest.requests.handlers import Driver, chosen_subtask

T = TypeVar("T")

_TYPES: Final = {
    "full": GraphType.FULL,
    "on_cpu": GraphType.ON_CPU,
    "off_cpu": GraphType.OFF_CPU,
}
_ENDED: Final = -1
_DISABLED: Final = -2
_NO_SAMPLE_YET: Final = -3
"""Flink's codes in the place of the time of the samples."""
_SPAN: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_Reader = Callable[[ReadLog], LogPiece]


@dataclass(frozen=True, slots=True)
class _Process:
    """The driver, or a TaskManager, and the questions that it answers."""

    name: str
    read: _Reader
    files: Callable[[], LogList]
    threads: Callable[[], ThreadDump]


def _process(driver: Driver, asked: Asked) -> _Process:
    """Return the one that the path is about. Raises RestError: there is no such TaskManager, and there was none."""
    if "taskmanagerid" not in asked.path:
        folder, depth = log_folder(), driver.settings.get(StackOptions.DUMP_DEPTH)
        return _Process("JobManager", folder.read, folder.list, lambda: dump_threads(depth))
    handle, name = _taskmanager(driver, asked)
    return _Process(
        "TaskManager",
        lambda question: _answered(handle.read_log(name, question)),
        lambda: _answered(handle.log_files(name)),
        lambda: _answered(handle.thread_dump(name)),
    )


def logs(driver: Driver, asked: Asked) -> Any:
    found = _process(driver, asked).files().files
    return {"logs": [{"name": one.name, "size": one.size, "mtime": one.mtime_ms} for one in found]}


def log(driver: Driver, asked: Asked) -> Answer:
    return _file(_process(driver, asked), ReadLog(asked.path.get("filename", "")), asked.span)


def stdout(driver: Driver, asked: Asked) -> Answer:
    return _file(_process(driver, asked), ReadLog(is_stdout=True), asked.span)


def threads(driver: Driver, asked: Asked) -> Any:
    found = _process(driver, asked).threads().threads
    return {
        "threadInfos": [
            {"threadName": one.name, "stringifiedThreadInfo": one.text} for one in found
        ]
    }


def flame_graph(driver: Driver, asked: Asked) -> Any:
    """`/jobs/:jobid/vertices/:vertexid/flamegraph`. The first request starts the samples, which come some seconds later."""
    job, vertex = driver.vertex(asked)
    given = asked.query.get("type", "full").lower()
    if given not in _TYPES:
        raise bad_parameter("query", "type", given)
    subtask = chosen_subtask(vertex, asked)
    chosen = vertex.attempts if subtask is None else vertex.attempts[subtask : subtask + 1]
    handle = driver.job_registry.control(job.job_id)
    if all(one.state.is_terminal for one in chosen) or not isinstance(handle, JobHandle):
        return {"endTimestamp": _ENDED}
    if not handle.flame_graphs.is_enabled:
        return {"endTimestamp": _DISABLED}
    vertex_id = VertexId(vertex.facts.vertex_id)
    graph = handle.flame_graphs.graph(vertex_id, _TYPES[given], subtask)
    if graph is None:
        return {"endTimestamp": _NO_SAMPLE_YET}
    return {"endTimestamp": graph.end_ms, "data": graph.tree}


def _taskmanager(driver: Driver, asked: Asked) -> tuple[JobHandle, ResourceId]:
    """The job's handle and the TaskManager, which may have ended. Raises RestError: there was none."""
    name = asked.path["taskmanagerid"]
    for job in driver.now().jobs:
        handle = driver.job_registry.control(job.job_id)
        for one in job.taskmanagers:
            is_meant = taskmanager_name(job.job_id, one.resource_id) == name
            if is_meant and isinstance(handle, JobHandle):
                return handle, one.resource_id
    raise RestError(500, "Internal server error.", f"TaskManager {name} not found")


def _file(process: _Process, wanted: ReadLog, asked_span: str) -> Answer:
    """A file, or the part that the request asks for, piece by piece. The first piece is read at once, because it may not be there.

    Flink gives whole files only. Source of parts: RFC 9110, range requests.
    """
    span = _span(asked_span)
    begin, end = span or (0, None)
    try:
        first = process.read(replace(wanted, offset=begin))
    except (NoSuchLog, OSError) as error:
        raise RestError(
            404, f"This file does not exist in {process.name} log dir.", str(error)
        ) from None
    size = first.file.size
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Disposition": f"inline; filename*=UTF-8''{quote(first.file.name, safe='')}",
    }
    end = size if end is None else min(end, size)
    if span and first.offset >= end:
        headers["Content-Range"] = f"bytes */{size}"
        text = f"The file has {size} bytes, so that it has no part {asked_span!r}."
        return Answer({"errors": [text]}, 416, headers=headers)
    if span:
        headers["Content-Range"] = f"bytes {first.offset}-{end - 1}/{size}"
    data = first.data[: max(0, end - first.offset)]
    pieces = itertools.chain([data], _further(process.read, wanted, first.offset + len(data), end))
    return Answer(pieces, 206 if span else 200, TEXT, headers)


def _span(text: str) -> tuple[int, int | None] | None:
    """Return where a part begins, from the end if it is negative, and where it ends; None there: with the file.

    None: the whole file, also for a header that is not understood.
    """
    found = _SPAN.fullmatch(text)
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        return -int(found[2]), None
    begin, end = int(found[1]), int(found[2]) + 1 if found[2] else None
    return None if end is not None and end <= begin else (begin, end)


def _further(read: _Reader, wanted: ReadLog, at: int, end: int) -> Iterator[bytes]:
    """The rest of the file as long as it was at the first look: it may grow while it is read."""
    while at < end:
        piece = read(replace(wanted, offset=at, length=min(MOST_OF_PIECE, end - at)))
        if not piece.data:
            return
        yield piece.data
        at += len(piece.data)


def _answered(future: Future[T]) -> T:
    try:
        return future.result()
    except NoAnswer as error:
        raise RestError(500, "Internal server error.", str(error)) from None
