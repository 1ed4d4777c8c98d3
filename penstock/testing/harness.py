"""StreamHarness: a part of a program driven by hand, in the test's own thread.

    with StreamHarness(lambda words: words.key_by(word_of).process(Count())) as harness:
        harness.process_element(("a", 1), timestamp=5)
        harness.process_watermark(10)
        assert harness.values() == [("a", 1)]

Source: Flink's OneInputStreamOperatorTestHarness, KeyedOneInputStreamOperatorTestHarness, TwoInputStreamOperatorTestHarness;
differs: takes any part of a program, with any number of inputs and outputs, instead of one operator.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from penstock.common.configuration import Configuration
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import (
    Boundedness,
    EnumeratorContext,
    QueueEnumerator,
    ReaderContext,
    Source,
    SourceReader,
)
from penstock.datastream.data_stream import DataStream
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.engine.compiler.job_graph_builder import build_job_graph
from penstock.engine.hosting.shipping.pickling import (
    dumps_records,
    loads_records,
    loads_state,
    serialize_program,
)
from penstock.engine.model.checkpoints import (
    InlineHandle,
    ListStateShare,
    OperatorRestore,
    OperatorSubtaskState,
    StateHandle,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.ids import JobId, VertexId
from penstock.engine.model.key_groups import MAX_PARALLELISM_LIMIT
from penstock.engine.runtime.codecs.convert import coerce_collection, to_rows
from penstock.engine.runtime.elements import (
    ACTIVE,
    IDLE,
    NO_TIMESTAMP,
    ColumnBatch,
    Element,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.runtime.keys.hashing import original_key
from penstock.engine.runtime.operators.keyed import KeyedOperator
from penstock.engine.runtime.state.descriptors import StateDescriptor
from penstock.engine.runtime.state.map_entries import plain_map
from penstock.engine.runtime.state.snapshot import OperatorSnapshot
from penstock.engine.runtime.state.snapshot_reader import read_operator
from penstock.engine.runtime.state.snapshot_writer import write_operator
from penstock.testing.clock import ManualClock
from penstock.testing.wiring import Wiring

_JOB_ID: Final = JobId("0" * 32)
_USER_STATE: Final = "state/"
DEFAULT_MAX_PARALLELISM: Final = 128
_ALL_GROUPS: Final = (0, MAX_PARALLELISM_LIMIT - 1)


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """A record of the output: a value and its timestamp in epoch ms, or None."""

    value: Any
    timestamp: int | None = None


class StreamHarness:
    """Drives a part of a program by hand, with one subtask of each operator."""

    def __init__(
        self,
        build: Callable[..., DataStream[Any] | Sequence[DataStream[Any]]],
        types: Sequence[TypeInformation | None] = (),
        *,
        clock: ManualClock | None = None,
        restored: bytes = b"",
        configuration: Mapping[str, str] | None = None,
    ) -> None:
        """Build the part and open its operators.

        Args:
            build: from a DataStream for each of its parameters to the stream to observe, or
                several. The functions in it are pickled, as in a job.
            types: the types of the inputs; missing ones are pickled.
            clock: the processing time; by default it starts at 0.
            restored: what `snapshot` of such a harness returned.
            configuration: a program's. Parallelism, checkpoints, restarts and resources have no meaning here.

        Raises:
            ConfigurationError: the configuration makes this a batch job, or a job would refuse it.
            GraphError, UserCodeError: building or opening fails.
        """
        self.clock = clock or ManualClock()
        env = StreamExecutionEnvironment(Configuration.from_dict(dict(configuration or {})))
        env.set_parallelism(1)
        if env.get_max_parallelism() < 1:
            env.set_max_parallelism(DEFAULT_MAX_PARALLELISM)
        inputs = _inputs_of(env, build, types)
        built = build(*inputs)
        looked_at = [built] if isinstance(built, DataStream) else list(built)
        for number, stream in enumerate(looked_at):
            stream.plumbing.collect_into(str(number))
        graph = env.plumbing.stream_graph("harness")
        if graph.is_batch:
            raise ConfigurationError(
                "StreamHarness drives streaming operators, but execution.runtime-mode makes this "
                "program a batch. Leave it out; test a batch as a whole job, on a MiniCluster."
            )
        job_graph = build_job_graph(graph, _JOB_ID, serialize_program)
        self._types = [*types, *[None] * (len(inputs) - len(types))]
        self._sources = _sources(job_graph.vertices.values(), inputs)
        self._output_types = [stream.plumbing.element_type for stream in looked_at]
        self._outputs: list[list[StreamRecord | Watermark | WatermarkStatus]] = [
            [] for _ in looked_at
        ]
        self._wiring = Wiring(job_graph, env.plumbing.settings, self.clock.now_ms, self._take)
        self._is_ended = False
        self._wiring.open(_restored(restored, self._wiring.operators))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the operators, tail first."""
        self._wiring.close()

    # ------------------------------------------------------------------ inputs

    def process_element(self, value: Any, timestamp: int | None = None, input: int = 0) -> None:  # ruff: ignore[builtin-argument-shadowing]
        """Process one record.

        Args:
            value: the record.
            timestamp: its event time in epoch ms, or None.
            input: the number of the input, from 0.

        Raises:
            UserCodeError: a function failed; the text has the user's traceback.
        """
        kind = self._types[input]
        (value,) = [value] if kind is None else coerce_collection([value], kind)
        stamps = None if timestamp is None else np.array([timestamp], np.int64)
        self._wiring.emit(self._sources[input], RowBatch([value], stamps))

    def process_elements(self, *values: Any, input: int = 0) -> None:  # ruff: ignore[builtin-argument-shadowing]
        """Process records without timestamps, one after the other."""
        for value in values:
            self.process_element(value, input=input)

    def process_watermark(self, timestamp: int, input: int = 0) -> None:  # ruff: ignore[builtin-argument-shadowing]
        """Promise that this input has no more records up to this timestamp, in epoch ms."""
        self._wiring.emit(self._sources[input], Watermark(timestamp))

    def process_watermark_status(self, *, is_idle: bool, input: int = 0) -> None:  # ruff: ignore[builtin-argument-shadowing]
        """Make an input idle or active; an idle input holds no watermark back."""
        status = IDLE if is_idle else ACTIVE
        self._wiring.emit(self._sources[input], status)

    def set_processing_time(self, now_ms: int) -> None:
        """Advance processing time to this time in epoch ms.

        Timers up to then fire in order, each at its own time.

        Raises:
            ValueError: the time is earlier than now.
        """
        while True:
            due = self._wiring.next_timer_ms
            if due is None or due > now_ms:
                break
            self.clock.set(max(due, self.clock.now_ms()))
            self._wiring.settle()
        self.clock.set(now_ms)
        self._wiring.settle()

    def wait_for_async(self) -> None:
        """Wait until all calls of async functions are answered. Raises TimeoutError after 30 s."""
        self._wiring.wait_for_async()
        self._wiring.settle()

    def end_input(self) -> None:
        """End all inputs: send the last watermark, then finish the operators."""
        if not self._is_ended:
            self._is_ended = True
            for source in self._sources:
                self._wiring.end_source(source)

    # ------------------------------------------------------------------ outputs

    def output(self, number: int = 0) -> list[StreamRecord | Watermark | WatermarkStatus]:
        """Return all output so far, in order.

        Args:
            number: which of the streams that `build` returned, from 0.
        """
        return list(self._outputs[number])

    def values(self, number: int = 0) -> list[Any]:
        """Return the values of all records so far."""
        return [one.value for one in self._outputs[number] if isinstance(one, StreamRecord)]

    def take_values(self, number: int = 0) -> list[Any]:
        """Return the values of the records since the last call, or since the start."""
        values = self.values(number)
        self._outputs[number].clear()
        return values

    def watermarks(self, number: int = 0) -> list[int]:
        """Return the timestamps of all watermarks so far, in epoch ms."""
        return [one.timestamp_ms for one in self._outputs[number] if isinstance(one, Watermark)]

    @property
    def late_records_dropped(self) -> int:
        """How many late records windows dropped, as in the metric of the same name."""
        return self._wiring.late_records_dropped

    @property
    def poison_records(self) -> int:
        """How many records all operators put aside by their `on_error`, as in the metric numPoisonRecords."""
        return self._wiring.poison_records

    # ------------------------------------------------------------------ state and timers

    def keyed_state(
        self, state: str | StateDescriptor, operator: str | None = None
    ) -> dict[Any, Any]:
        """Return the current values of a keyed state, by key.

        Args:
            state: the state's descriptor or name.
            operator: the operator's name or uid, if several have such a state.

        Raises:
            ConfigurationError: there is no such state, or more than one.
        """
        name = state if isinstance(state, str) else state.name
        states = self._wiring.snapshot()
        specs = self._wiring.operators
        wanted = {operator, None}
        found = [
            part
            for uid, one in states.items()
            if uid in wanted or specs[uid].name in wanted or operator is None
            for part_name, part in _read(one).keyed.items()
            if part_name == _USER_STATE + name
        ]
        for one in states.values():
            one.close(is_kept=True)
        if len(found) != 1:
            there = sorted(
                f"{specs[uid].name}: {part.removeprefix(_USER_STATE)}"
                for uid, one in states.items()
                for part in one.keyed
                if part.startswith(_USER_STATE)
            )
            raise ConfigurationError(
                f"{len(found)} operators have keyed state {name!r}, expected one. There are now: "
                f"{there}. A state exists as soon as it has a value. If several operators have it, "
                "name the operator."
            )
        (part,) = found
        is_map = part.info.kind == "Map"
        return {
            original_key(row[0]): plain_map(row[-1]) if is_map else row[-1] for row in part.rows()
        }

    def event_time_timers(self) -> int:
        """Return the number of event-time timers of all keyed operators."""
        return sum(len(one.timers.event.entries()) for one in self._keyed())

    def processing_time_timers(self) -> int:
        """Return the number of processing-time timers of all keyed operators."""
        return sum(len(one.timers.processing.entries()) for one in self._keyed())

    def snapshot(self) -> bytes:
        """Return all operators' state as bytes for `restored`, as a checkpoint writes it."""
        return pickle.dumps({uid: _written(one) for uid, one in self._wiring.snapshot().items()})

    def _keyed(self) -> list[KeyedOperator]:
        return [one for one in self._wiring.running if isinstance(one, KeyedOperator)]

    def _take(self, stream: str, element: Element) -> None:
        number = int(stream)
        if isinstance(element, ColumnBatch):
            element = to_rows(element, self._output_types[number])
        if isinstance(element, RowBatch):
            stamps = (
                [None] * len(element) if element.timestamps is None else element.timestamps.tolist()
            )
            self._outputs[number] += [
                StreamRecord(value, None if stamp == NO_TIMESTAMP else stamp)
                for value, stamp in zip(element.values, stamps, strict=True)
            ]
        elif isinstance(element, Watermark | WatermarkStatus):
            self._outputs[number].append(element)


# ---------------------------------------------------------------------- inputs


class _ByHand(Source):
    """A source whose records come from the test."""

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(self, context: EnumeratorContext) -> QueueEnumerator:
        return QueueEnumerator(context, ())

    def create_reader(self, context: ReaderContext) -> SourceReader:
        raise AssertionError("an input that is fed by hand has no reader")


def _inputs_of(
    env: StreamExecutionEnvironment,
    build: Callable[..., object],
    types: Sequence[TypeInformation | None],
) -> list[DataStream[Any]]:
    parameters = [
        one
        for one in inspect.signature(build).parameters.values()
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) and one.default is one.empty
    ]
    if not parameters or len(types) > len(parameters):
        raise ConfigurationError(
            f"build takes {len(parameters)} streams, but {len(types)} types were given. Expected "
            "at least one stream, and at most one type for each."
        )
    kinds = [*types, *[None] * (len(parameters) - len(types))]
    return [env.add_source(_ByHand(), f"Input {number}", kind) for number, kind in enumerate(kinds)]


def _sources(vertices: Any, inputs: Sequence[DataStream[Any]]) -> list[VertexId]:
    """The vertex at the head of which each input is. Raises: ConfigurationError: an input leads nowhere."""
    by_node = {
        operator.node_id: vertex.vertex_id for vertex in vertices for operator in vertex.operators
    }
    found = []
    for number, stream in enumerate(inputs):
        (upstream,) = stream.plumbing.upstreams
        if upstream.node_id not in by_node:
            raise ConfigurationError(
                f"input {number} does not lead to any of the streams that build returned. Use it "
                "in build, or leave it out."
            )
        found.append(by_node[upstream.node_id])
    return found


# ---------------------------------------------------------------------- bytes


def _inline(data: bytes) -> StateHandle:
    return InlineHandle(data, 0)


def _bytes_of(handle: StateHandle) -> bytes:
    assert isinstance(handle, InlineHandle)
    return handle.data


def _written(state: OperatorSnapshot) -> OperatorSubtaskState:
    try:
        return write_operator(state, _inline, dumps_records, loads_records)
    finally:
        state.close(is_kept=True)


def _read(state: OperatorSnapshot) -> OperatorSnapshot:
    """The state as it would be after a restore."""
    restore = OperatorRestore(_written(state).keyed)
    return read_operator(restore, _bytes_of, _ALL_GROUPS, loads_records)


def _restored(data: bytes, operators: Mapping[str, object]) -> dict[str, OperatorSnapshot]:
    """The state of each operator. Raises: ConfigurationError: there is state of an operator that does not exist."""
    if not data:
        return {}
    written = loads_records(data)
    unknown = sorted(set(written) - set(operators))
    if unknown:
        raise ConfigurationError(
            f"the snapshot has state of operators that do not exist here: {unknown}; there are "
            f"{sorted(operators)}. Give operators a uid() so that they are found again."
        )
    restored = {}
    for uid, state in written.items():
        lists = tuple(ListStateShare(one, 0, len(one.offsets) - 1) for one in state.lists)
        restore = OperatorRestore(state.keyed, lists)
        restored[uid] = read_operator(restore, _bytes_of, _ALL_GROUPS, loads_state)
    return restored
