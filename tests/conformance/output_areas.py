"""Adapters of the output side's areas: subpartitions, files of results, release, framing, selectors."""

import mmap
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.engine.model.errors import PenstockError
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.runtime.elements import EndOfPartition, RowBatch, Watermark
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.network.partition.bounded_data import (
    DATA,
    DiskBuffer,
    FileData,
    MappedFileData,
    MemoryMappedData,
)
from penstock.engine.runtime.network.partition.buffer_builder import RecordSerializer
from penstock.engine.runtime.network.partition.frame_queue import Frame
from penstock.engine.runtime.network.partition.result_partition import ReleaseOnConsumption
from penstock.engine.runtime.network.partition.subpartition import REFUSED
from penstock.engine.runtime.network.partitioner import RoundRobin, make_partitioner
from penstock.engine.runtime.network.prioritized_deque import PrioritizedDeque
from tests.conformance.compare import differences
from tests.tools.runtime.partitions import (
    Barrier,
    Checkpoints,
    ViewListener,
    blocking,
    pipelined,
)

Given = dict[str, Any]
_KINDS = (FileData, MappedFileData, MemoryMappedData)


def _label(element: Any) -> Any:
    if isinstance(element, RowBatch):
        return element.values[0] if element.values else "empty"
    if isinstance(element, EndOfPartition):
        return "end_of_partition"
    return element.name if isinstance(element, _Event) else "barrier"


@dataclass(frozen=True)
class _Event:
    """Any event: only its name tells it from others."""

    name: str = "event"


def _answer(action: Callable[[], int]) -> str:
    return "rejected -1" if action() == REFUSED else "ok"


# ---------------------------------------------------------------------- pipelined_subpartition


class _Pipelined:
    """One subpartition, ops in words. Each record of a batch stands for a byte and says the batch's name."""

    def __init__(self, *, has_reader: bool) -> None:
        self.checkpoints = Checkpoints()
        self.partition = pipelined(output_state=self.checkpoints)
        self.sub = self.partition.subpartitions[0]
        self.listener = ViewListener()
        self.view: Any = None
        self.polled: list[Any] = []
        self.blocked: bool | None = None
        self.backlog_blocked: int | None = None
        if has_reader:
            self.create_view()

    def create_view(self) -> None:
        self.view = self.partition.create_view(0, self.listener)

    def run(self, op: str) -> str:
        """What became of it."""
        word = op.split()[0]
        if word == "add":
            return _answer(lambda: self.add(op))
        if word == "writer":
            self.write_on(op)
        elif word == "create_view":
            self.create_view()
        elif word == "poll":
            self.poll()
        elif word == "resume":
            (self.view or self._made_view()).resume()
        elif word == "release":
            self.sub.release()
        else:
            getattr(self.sub, word)()
        return "ok"

    def _made_view(self) -> Any:
        self.create_view()
        return self.view

    def add(self, op: str) -> int:
        words = set(op.replace("(", " ").replace(")", " ").split())
        if "barrier" in words:
            return self.sub.add(
                Barrier(
                    has_priority=bool(words & {"unaligned", "priority"}),
                    is_timeoutable="timeoutable" in words,
                )
            )
        if words & {"event", "watermark"}:
            name = re.search(r"(?:event|watermark) (?!finished)(\w+)", op)
            return self.sub.add(_Event(name[1]) if name else _Event())  # type: ignore[arg-type]
        name = re.search(r"data (?!finished|unfinished|bytes)(\w+)", op)
        batch = RowBatch([name[1] if name else "data"] * _bytes_of(op, 1))
        return self.sub.add_frame(batch, is_finished="unfinished" not in words)

    def write_on(self, op: str) -> None:
        if "finish" in op:
            self.sub.finish_tail()
        else:
            self.sub.write(RowBatch(["data"] * _bytes_of(op, 1)))

    def poll(self) -> Any:
        view = self.view or self._made_view()
        polled = view.poll()
        if polled is None:
            self.polled.append(None)
            return None
        element = polled.element
        self.polled.append({
            "buffer": _label(element),
            "bytes": len(element) if isinstance(element, RowBatch) else 0,
            "backlog": polled.backlog,
            "next": polled.next.name,
        })
        if isinstance(element, Barrier):
            self.blocked = self.sub.queue.is_blocked
            self.backlog_blocked = self.sub.backlog
        return polled

    def queue(self) -> list[Any]:
        entries = self.sub.queue.entries
        return [
            _label(one.batches[0] if one.batches else RowBatch([]))
            if type(one) is Frame
            else _label(one)
            for one in entries
        ]


def _bytes_of(op: str, default: int) -> int:
    found = re.search(r"bytes=(\d+)|(\d+) bytes", op)
    return int(found[1] or found[2]) if found else default


_NEXT = {
    "DATA_BUFFER": "DATA",
    "EVENT_BUFFER": "EVENT",
    "PRIORITIZED_EVENT_BUFFER": "PRIORITY_EVENT",
}
_NOTIFYING = {"add", "flush", "finish"}


def pipelined_subpartition(given: Given, expect: Given) -> str | None:
    if "head" in given:
        return differences(expect, {"available": [_has(head, given) for head in given["head"]]})
    bench = _Pipelined(has_reader=bool(given.get("reader") or "queue" in given))
    for entry in given.get("queue", ()):
        name, *kind = entry.split()
        bench.add(f"add {' '.join(kind) or 'data'} {name} finished")
    bench.listener = bench.listener if bench.view is None else _fresh(bench.listener)
    got: Given = {"notified": [], "backlog_after": [], "result": []}
    refused = None
    for place, op in enumerate(given.get("ops", ()), start=1):
        before = bench.listener.data
        try:
            got["result"].append(bench.run(op))
        except PenstockError:
            refused = refused or place
            got["result"].append("error")
        is_told = bench.listener.data > before
        got["notified"].append(is_told if op.split()[0] in _NOTIFYING else None)
        got["backlog_after"].append(bench.sub.backlog)
    if "polled" in expect and not bench.polled:
        while bench.poll() is not None:
            pass
        bench.polled.pop()
    got |= _outcome(bench)
    if expect.get("error"):
        return None if refused else f"expected a refusal, got {got}"
    if "polled" in expect:
        got["polled"] = [
            _shaped(wanted, one)
            for wanted, one in zip(expect["polled"], bench.polled, strict=False)
        ] + bench.polled[len(expect["polled"]) :]
    return differences(expect, got | {"error_on": refused})


def _fresh(listener: ViewListener) -> ViewListener:
    listener.data, listener.priorities = 0, []
    return listener


def _outcome(bench: _Pipelined) -> Given:
    overtaken = [name for _, _, names in bench.checkpoints.completed for name in names]
    priorities = bench.listener.priorities
    return {
        "blocked_after_barrier": bench.blocked,
        "backlog_while_blocked": bench.backlog_blocked,
        "queue_after": bench.queue(),
        "persisted_in_flight": overtaken,
        "priority_notified": bool(priorities),
        "sequence_given": priorities[0] if priorities else None,
    }


def _shaped(wanted: Any, polled: Any) -> Any:
    """A case may say the name only, or some of what a poll tells."""
    if polled is None:
        return None
    if not isinstance(wanted, dict):
        return polled["buffer"]
    told = {key: polled.get(key) for key in wanted}
    if _NEXT.get(str(wanted.get("next")).upper()) == polled["next"]:
        told["next"] = wanted["next"]  # Flink's own name of it
    return told


def _has(head: str, given: Given) -> bool:
    bench = _Pipelined(has_reader=True)
    bench.add(f"add {head}")
    has_credit = not given.get("no_credit", False)
    return bool(bench.view.is_available(has_credit=has_credit))


# ---------------------------------------------------------------------- blocking_subpartition


class _Blocking:
    """One subpartition of a kind, ops in words."""

    def __init__(self, folder: str, kind: Any) -> None:
        self.path = os.path.join(folder, "part-0")
        self.partition = blocking(Path(folder), kind, codec=None, buffer=4096)
        self.sub = self.partition.subpartitions[0]
        self.written = 0
        self.views: dict[str, Any] = {}
        self.seen: dict[str, list[Any]] = {}
        self.backlogs: dict[str, list[int]] = {}

    def run(self, op: str) -> str:
        words = op.split()
        if words[0] == "write":
            return self.write(int(words[1]) if len(words) > 1 and words[1].isdigit() else 1)
        if words[0] in {"create_reader", "reader"}:
            name = words[1] if len(words) > 1 else f"reader {len(self.views)}"
            self.views[name] = self.partition.create_view(0, ViewListener())
            self.seen[name], self.backlogs[name] = [], []
        elif words[0] in self.views:
            self.read(words[0], words[1] if len(words) > 1 else "poll")
        elif words[0] == "event":
            return _answer(lambda: self.sub.add(Watermark(0)))
        else:
            getattr(self.sub, words[0])()
        return "ok"

    def write(self, buffers: int) -> str:
        answer = "ok"
        for _ in range(buffers):
            self.written += 1
            batch = RowBatch([f"b{self.written}"])
            answer = _answer(lambda batch=batch: self.sub.add_frame(batch, is_finished=True))
        return answer

    def read(self, name: str, word: str = "poll") -> None:
        if word != "poll":
            getattr(self.views[name], word)()
            return
        polled = self.views[name].poll()
        self.seen[name].append(None if polled is None else _label(polled.element))
        if polled is not None:
            self.backlogs[name].append(polled.backlog)

    def close(self) -> None:
        self.partition.release()
        for view in self.views.values():
            view.release()


def blocking_subpartition(given: Given, expect: Given) -> str | None:
    """All kinds have to agree."""
    for kind in _KINDS:
        with tempfile.TemporaryDirectory() as folder:
            bench = _Blocking(folder, kind)
            try:
                text = differences(expect, _blocking(bench, given))
            finally:
                bench.close()
        if text is not None:
            return f"{kind}: {text}"
    return None


def _blocking(bench: _Blocking, given: Given) -> Given:
    got: Given = {"result": [], "error_on": None, "error": None, "file_deleted_after": None}
    for place, op in enumerate(given["ops"], start=1):
        try:
            got["result"].append(bench.run(op))
        except Exception as error:
            got["result"].append("error")
            if got["error_on"] is None:
                got["error_on"], got["error"] = place, error
        if not os.path.exists(bench.path) and got["file_deleted_after"] is None:
            got["file_deleted_after"] = place
    for name in given.get("interleave", ()):
        bench.read(name)
    first = next(iter(bench.backlogs.values()), [])
    return got | {"backlog_after_each": first} | bench.seen


# ---------------------------------------------------------------------- bounded_data


def bounded_data(given: Given) -> Given:
    made = [kind for word, kind in _words_of_kinds(given["kind"]) if word]
    with tempfile.TemporaryDirectory() as folder:
        answers = [_bounded(os.path.join(folder, kind.__name__), kind, given) for kind in made]
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    assert all(answer == answers[0] for answer in answers), answers
    return answers[0]


def _words_of_kinds(text: str) -> list[tuple[bool, Any]]:
    kinds = [part.strip() for part in re.split(r"\band\b|,", text)]
    return [
        ("file" in kinds, FileData),
        (any("file" in kind and "mmap" in kind for kind in kinds), MappedFileData),
        ("mmap" in kinds, MemoryMappedData),
    ]


def _bounded(path: str, kind: Any, given: Given) -> Given | Exception:
    named = [int(size) for op in given.get("ops", ()) for size in re.findall(r"\d+", op)]
    too_large = 2 * mmap.ALLOCATIONGRANULARITY
    frame = too_large if "frame" in str(given.get("region_size")) else max(named, default=100)
    made: list[Any] = []
    try:
        data = _made_data(path, kind, given)
        made.append(data)
        reads = given.get("reads_without_recycle", 0)
        for op in given.get("ops", ["write"] * (reads + 1)):
            _bounded_op(data, op, frame)
        data.finish_write()
        return _reads(data, reads)
    except Exception as error:
        return error
    finally:
        for data in made:
            data.close()


def _bounded_op(data: Any, op: str, frame: int) -> None:
    if "reader" in op:
        data.create_reader(lambda: None).close()
    elif "finish" in op:
        data.finish_write()
    else:
        data.write(DiskBuffer(DATA, False, bytes(frame)))


def _made_data(path: str, kind: Any, given: Given) -> Any:
    size = given.get("region_size")
    if kind is FileData:
        return FileData(path, given.get("reader_buffers", 2))
    if size is None:
        return kind(path)
    if isinstance(size, int):
        return kind(path, size)
    page = mmap.ALLOCATIONGRANULARITY
    return kind(path, page - 1 if "page" in size else page)


def _reads(data: Any, reads: int) -> Given:
    told: list[str] = []
    reader = data.create_reader(lambda: told.append("data available notification"))
    try:
        buffers = [reader.next_buffer() for _ in range(reads)]
        results = [None if buffer is None else "buffer" for buffer in buffers]
        for buffer in buffers[:1]:
            if buffer is not None:
                buffer.recycle()
        return {"results": results, "after_recycle": told[0] if told else None}
    finally:
        reader.close()


# ---------------------------------------------------------------------- small ones


def release_on_consumption(given: Given) -> Given:
    shape = given.get("shape", "newer" if "events" in given else "seed")
    users = ReleaseOnConsumption(given["subpartitions"], is_producer_a_user=shape != "seed")
    events = given.get("events") or [f"consumed {index}" for index in given["consumed"]]
    released, not_released = None, []
    for place, event in enumerate(events, start=1):
        word, *rest = event.split()
        if word == "consumed":
            users.consumed(int(rest[0]))
        else:
            users.closed_by_producer()
        if not users.is_released:
            not_released.append(place)
        elif released is None:
            released = place
    return {"released_after": released, "not_released_after": not_released}


def prioritized_deque(given: Given) -> Given:
    deque: PrioritizedDeque[int] = PrioritizedDeque()
    polled = []
    calls = {
        "add": deque.add,
        "addPriority": deque.add_priority,
        "prioritize": deque.prioritize,
        "remove": deque.remove,
    }
    for op in given["ops"]:
        word, *rest = op.split()
        if word == "poll":
            polled.append(deque.poll())
        else:
            calls[word](int(rest[0]))
    return {"order": list(deque), "polled": polled, "priority_count": deque.priority_count}


LENGTH_BYTES = 4


def record_framing(given: Given) -> Given:
    serializer = RecordSerializer(given["buffer_size"])
    buffers: list[int] = []
    spans = []
    written = 0
    for size in given["records_payload_bytes"]:
        first = len(buffers)
        buffers += [len(buffer) for buffer in serializer.add([bytes(size)])]
        written += LENGTH_BYTES + size
        is_rest_left = written > sum(buffers)
        last = len(buffers) if is_rest_left else len(buffers) - 1
        spans.append(list(range(first, last + 1)))
    rest = serializer.flush()
    if rest is not None:
        buffers.append(len(rest))
    return {"stream_bytes": sum(buffers), "buffers": buffers, "record_spans": spans}


def selectors(given: Given) -> Given:
    if "kinds" in given:
        return {"channel": [_selected(kind, given)[0] for kind in given["kinds"]]}
    if "subpartitions" in given:
        count, parallelism = given["subpartitions"], given.get("parallelism")
        partitioner = _partitioner(given["kind"], count, given.get("start", 0), parallelism)
        is_replaced = isinstance(partitioner, RoundRobin) and given["kind"] == "forward"
        return {"replaced_by": "rebalance" if is_replaced else None}
    channels = _selected(given["kind"], given)
    return {"channels": channels, "channel": channels[0]}


def _selected(kind: str, given: Given) -> list[int]:
    channels = given.get("channels", given.get("parallelism", 2))
    records = RowBatch(list(range(given.get("records", 1))))
    return _partitioner(kind, channels, given.get("start", 0), channels).channels_of(records)


def _partitioner(kind: str, channels: int, start: int, parallelism: int | None) -> Any:
    partitioning = Partitioning(
        ShipStrategy(kind.upper()), KeySelection(lambda value: value), lambda key, n: key % n
    )
    return make_partitioner(partitioning, channels, 0, 128, start, parallelism)


AREAS: dict[str, Callable[..., Any]] = {
    "pipelined_subpartition": pipelined_subpartition,
    "blocking_subpartition": blocking_subpartition,
    "bounded_data": bounded_data,
    "release_on_consumption": release_on_consumption,
    "prioritized_deque": prioritized_deque,
    "record_framing": record_framing,
    "selectors": selectors,
}
