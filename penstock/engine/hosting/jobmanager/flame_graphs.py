"""Flame graphs of the vertices of one job, sampled in the TaskManagers when somebody asks. Any thread.

    graph(vertex)   nothing is known: None, and sampling begins
    graph(vertex)   some seconds later: the tree; when it is old, sampling begins again and the old one is given

Source: Flink VertexThreadInfoTracker. What has not been asked for in a while is dropped.

What the configuration says of flame graphs and thread dumps. Knows neither.

Trees of flame graphs, made of stacks that were sampled. Source: Flink VertexFlameGraphFactory.

    {"name": "root", "value": 100, "children": [{"name": "app.parse:12", "value": 60, "children": []}]}

The value of the root is the number of samples; the value of a frame is in how many of them it was. Differs: frames are
Python's, so that no lambda has a number in its name that must go.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from penstock.engine.hosting.network.wire.messages import decode
from penstock.engine.hosting.os.clock import monotonic_ms, wall_ms
from penstock.engine.model.ids import AttemptId, ResourceId, VertexId
from penstock.engine.model.messages import Question, SampledStack, SampleStacks, StackSamples


@dataclass(frozen=True, slots=True)
class StackSettings:
    """`samples`, `delay_ms`, `depth`: of a flame graph, see SampleStacks. `dump_depth`: frames of a thread in a dump.

    `refresh_ms`: how old a flame graph is when a new one is made. `cleanup_ms`: how long one is kept unasked.
    `has_flame_graphs`: whether any can be asked for.
    """

    samples: int = 100
    delay_ms: int = 50
    depth: int = 100
    refresh_ms: int = 60_000
    cleanup_ms: int = 600_000
    dump_depth: int = 50
    has_flame_graphs: bool = True


Tree: TypeAlias = dict[str, Any]


class GraphType(StrEnum):
    """Which samples count: all, those on a processor, or those that waited. Values as Flink's `type` parameter has them."""

    FULL = "full"
    ON_CPU = "on_cpu"
    OFF_CPU = "off_cpu"


_HITS: Final[Mapping[GraphType, Callable[[SampledStack], int]]] = {
    GraphType.FULL: lambda stack: stack.on_cpu + stack.off_cpu,
    GraphType.ON_CPU: lambda stack: stack.on_cpu,
    GraphType.OFF_CPU: lambda stack: stack.off_cpu,
}


@dataclass(slots=True)
class _Node:
    value: int
    children: dict[str, _Node]


def tree_of(stacks: Iterable[SampledStack], kind: GraphType) -> Tree:
    """Return the tree of samples of one or many tasks. Children are in the order of their values, the largest first."""
    hits_of = _HITS[kind]
    root = _Node(0, {})
    for stack in stacks:
        hits = hits_of(stack)
        if not hits:
            continue
        root.value += hits
        node = root
        for frame in stack.frames:
            node = node.children.setdefault(frame, _Node(0, {}))
            node.value += hits
    return _plain(root)


def _plain(root: _Node) -> Tree:
    """Convert without recursion, because stacks may be deeper than Python's own limit."""
    top: Tree = {"name": "root", "value": root.value, "children": []}
    left = [(root, top)]
    while left:
        node, tree = left.pop()
        for name, child in sorted(node.children.items(), key=lambda item: -item[1].value):
            found: Tree = {"name": name, "value": child.value, "children": []}
            tree["children"].append(found)
            left.append((child, found))
    return top


Ask = Callable[[ResourceId, Question], Future[Any]]
_Key: TypeAlias = tuple[VertexId, int | None]


@dataclass(frozen=True, slots=True)
class FlameGraph:
    """`end_ms`: when its last sample was taken, since 1970. `tree`: see `engine.hosting.jobmanager.stack_trees`."""

    end_ms: int
    tree: Tree


@dataclass(slots=True)
class _Sampled:
    """`payloads`: of StackSamples; None: none has come yet. `trees`: made of them. `missing`: answers to come."""

    asked_ms: int
    payloads: tuple[bytes, ...] | None = None
    sampled_ms: int = 0
    end_ms: int = 0
    missing: int = 0
    coming: list[bytes] = field(default_factory=list)
    trees: dict[GraphType, Tree] = field(default_factory=dict)


class FlameGraphs:
    """Args: ask: `JobManager.ask`. where: which attempts of all vertices are deployed where now."""

    def __init__(
        self,
        ask: Ask,
        where: Callable[[], Mapping[AttemptId, ResourceId]],
        settings: StackSettings,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._ask = ask
        self._where = where
        self._settings = settings
        self._now_ms = now_ms
        self.is_enabled = settings.has_flame_graphs
        self._lock = threading.Lock()
        self._known: dict[_Key, _Sampled] = {}

    def graph(
        self, vertex_id: VertexId, kind: GraphType = GraphType.FULL, subtask: int | None = None
    ) -> FlameGraph | None:
        """Return the newest graph of a vertex, or of one of its subtasks; None: there is none yet.

        Samples are taken if there are none or they are older than the refresh interval. They come some seconds later,
        and never if no task of the vertex runs.
        """
        now_ms = self._now_ms()
        with self._lock:
            self._drop_forgotten(now_ms)
            known = self._known.setdefault((vertex_id, subtask), _Sampled(now_ms))
            known.asked_ms = now_ms
            age_ms = now_ms - known.sampled_ms
            is_old = known.payloads is None or age_ms >= self._settings.refresh_ms
            wanted = self._begin(known, vertex_id, subtask) if is_old else {}
        for resource_id, attempts in wanted.items():
            self._sample(known, vertex_id, subtask, resource_id, attempts)
        with self._lock:
            payloads, end_ms = known.payloads, known.end_ms
            tree = known.trees.get(kind)
        if payloads is None:
            return None
        if tree is None:
            tree = tree_of(_stacks(payloads, subtask), kind)
            with self._lock:
                if known.payloads is payloads:
                    known.trees[kind] = tree
        return FlameGraph(end_ms, tree)

    # ------------------------------------------------------------------ sampling

    def _begin(
        self, known: _Sampled, vertex_id: VertexId, subtask: int | None
    ) -> Mapping[ResourceId, list[AttemptId]]:
        """Return whom to ask for which attempts; nobody while answers are on their way. Under the lock."""
        wanted: dict[ResourceId, list[AttemptId]] = defaultdict(list)
        if known.missing:
            return wanted
        for attempt_id, resource_id in self._where().items():
            if attempt_id.vertex_id == vertex_id and subtask in {None, attempt_id.subtask}:
                wanted[resource_id].append(attempt_id)
        known.missing = len(wanted)
        known.coming = []
        return wanted

    def _sample(
        self,
        known: _Sampled,
        vertex_id: VertexId,
        subtask: int | None,
        resource_id: ResourceId,
        attempts: Iterable[AttemptId],
    ) -> None:
        settings = self._settings
        question = SampleStacks(
            tuple(attempts), settings.samples, settings.delay_ms, settings.depth
        )
        answered = self._ask(resource_id, question)
        answered.add_done_callback(lambda done: self._came(known, vertex_id, subtask, done))

    def _came(
        self, known: _Sampled, vertex_id: VertexId, subtask: int | None, done: Future[Any]
    ) -> None:
        """Take an answer. On the JobManager's loop, so trees are made by those who ask for them."""
        is_answered = not done.cancelled() and done.exception() is None
        samples: StackSamples | None = done.result() if is_answered else None
        with self._lock:
            if samples is not None and samples.stacks:
                known.coming.append(samples.payload)
            known.missing -= 1
            if known.missing or not known.coming:
                return
            payloads = tuple(known.coming)
            known.coming = []
            self._keep(known, payloads)
            for (of_vertex, of_subtask), other in self._known.items():
                # A sample of the vertex is one of those subtasks too that somebody looks at.
                if subtask is None and of_vertex == vertex_id and of_subtask is not None:
                    self._keep(other, payloads)

    def _keep(self, known: _Sampled, payloads: tuple[bytes, ...]) -> None:
        known.payloads, known.trees = payloads, {}
        known.sampled_ms, known.end_ms = self._now_ms(), wall_ms()

    def _drop_forgotten(self, now_ms: int) -> None:
        for key, known in list(self._known.items()):
            if now_ms - known.asked_ms >= self._settings.cleanup_ms and not known.missing:
                del self._known[key]


def _stacks(payloads: Iterable[bytes], subtask: int | None) -> Iterator[SampledStack]:
    """Yield the stacks of all tasks, or of one subtask."""
    for payload in payloads:
        stacks: tuple[SampledStack, ...] = decode(payload)
        yield from (one for one in stacks if subtask in {None, one.attempt_id.subtask})
