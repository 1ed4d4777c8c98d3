"""TaskManagers with a driver that is a test: deploys a program, feeds its sources, takes checkpoints when it is told to.

What it is told is what the wire would carry; what the tasks say lies in `heard`, in order. Nothing is decided by machines.
"""

import itertools
import pickle
import queue
import time
from dataclasses import dataclass, field, replace

from penstock.engine.compiler.job_graph_builder import build_job_graph
from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.hosting.shipping import pickling
from penstock.engine.hosting.taskmanager.config import TaskManagerConfig
from penstock.engine.hosting.taskmanager.taskmanager import TaskManager
from penstock.engine.hosting.taskmanager_order import TaskSettings
from penstock.engine.machines.checkpoints.restore import RestorePlan
from penstock.engine.machines.execution.execution_graph import ExecutionGraph
from penstock.engine.machines.scheduling.task_deployments import TaskDeployments
from penstock.engine.model.checkpoints import (
    CheckpointOptions,
    CheckpointType,
    CompletedCheckpoint,
    OperatorCheckpoint,
)
from penstock.engine.model.ids import (
    AllocationId,
    AttemptId,
    FencingToken,
    JobId,
    ResourceId,
    TaskManagerLocation,
)
from penstock.engine.model.messages import (
    AcknowledgeCheckpoint,
    AddSplits,
    AnswerOffers,
    CancelTask,
    DeclineCheckpoint,
    DeployTask,
    DriverCredit,
    DriverData,
    FreeSlot,
    NoMoreSplits,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    PutBlob,
    RegistrationAccepted,
    RequestSlot,
    SplitRequest,
    TaskStateChanged,
    TriggerCheckpoint,
)
from penstock.engine.model.states import ExecutionState
from penstock.engine.runtime.network.network_settings import NetworkSettings
from penstock.engine.runtime.sources.contract import EnumeratorContext
from penstock.engine.runtime.sources.operator import SourceOperator
from tests.tools.identities import new_credentials

JOB = JobId("job")
SLOT = AllocationId("slot")
TOKEN = FencingToken("token")
PATIENCE_S = 60.0


class Told(TaskManager):
    """Without a wire: what it sends goes to the driver's inbox."""

    def __init__(self, config, inbox) -> None:
        self.inbox = inbox
        super().__init__(config)

    def send(self, message) -> None:
        self.inbox.put(message)


@dataclass
class Enumerating(EnumeratorContext):
    """One source's enumerator on the driver."""

    driver: object
    vertex: object
    node_id: int
    uid: str
    source: object
    enumerator: object = None
    readers: list = field(default_factory=list)

    def parallelism(self) -> int:
        return self.vertex.parallelism

    def registered_readers(self):
        return self.readers

    def assign_splits(self, subtask, splits) -> None:
        attempt_id = self.driver.attempt(self.vertex, subtask)
        self.driver.tell(AddSplits(attempt_id, self.node_id, pickling.serialize(list(splits))))

    def signal_no_more_splits(self, subtask) -> None:
        self.driver.tell(NoMoreSplits(self.driver.attempt(self.vertex, subtask), self.node_id))

    def call_periodically(self, period_ms, call) -> None:
        raise NotImplementedError("no source of these tests discovers splits by the clock")


class FakeDriver:
    """One run of a program. `restored`: what it begins with, as `complete` gave it; `feeds` False: sources get nothing by
    themselves, the test sends their splits. `grants`: rows that came make room for others.
    """

    def __init__(self, stream_graph, checkpointing, restored=None, taskmanagers=1, feeds=True):
        self.inbox: queue.Queue = queue.Queue()
        self.heard: list = []
        self.rows: list = []
        self.states: dict = {}
        self.enumerated: dict = {}
        self.feeds = feeds
        self.grants = True
        self.job_graph = build_job_graph(stream_graph, JOB, pickling.serialize)
        self.graph = ExecutionGraph(self.job_graph)
        self.deployments = TaskDeployments(self.job_graph, self.graph)
        credentials = new_credentials(TOKEN, JOB)
        # Buffers fill up here, as they do when no time limits what waits: a barrier is to overtake it.
        network = NetworkSettings(in_flight_ms=0)
        settings = TaskSettings(checkpointing=checkpointing, checks_threads=True, network=network)
        self.managers = {}
        for number in range(taskmanagers):
            resource_id = ResourceId(f"tm-{number}")
            config = TaskManagerConfig(
                resource_id, "127.0.0.1", 0, credentials, Endpoint("127.0.0.1"), 1, 1.0, settings
            )
            self.managers[resource_id] = Told(config, self.inbox)
        self.plan = None if restored is None else RestorePlan(self.job_graph, restored)
        self.sources = self._sources(stream_graph)
        self._deploy()

    # ------------------------------------------------------------------ telling

    def tell(self, message) -> None:
        """A message to the task that it is for, or to a TaskManager."""
        where = getattr(message, "resource_id", None)
        if where is None:
            where = self.graph.current(message.attempt_id).execution.location.resource_id
        self.managers[where].handle(replace(message, fencing_token=TOKEN))

    def attempt(self, job_vertex, subtask):
        (found,) = [
            vertex.execution.attempt_id
            for vertex in self.graph.vertices
            if vertex.job_vertex.job_vertex is job_vertex and vertex.subtask == subtask
        ]
        return found

    @property
    def attempts(self) -> list:
        return [vertex.execution.attempt_id for vertex in self.graph.vertices]

    @property
    def source_attempts(self) -> list:
        return [v.execution.attempt_id for v in self.graph.vertices if not v.consumed_groups]

    def trigger(self, checkpoint_id, attempts=None, options=None, timestamp_ms=0) -> None:
        """`attempts`: by default the sources."""
        for one in self.sources:
            self.enumerated[checkpoint_id, one.uid] = pickle.dumps(one.enumerator.snapshot_state())
        for attempt_id in self.source_attempts if attempts is None else attempts:
            where = self.graph.current(attempt_id).execution.location.resource_id
            options = options or CheckpointOptions()
            self.tell(TriggerCheckpoint(where, (attempt_id,), checkpoint_id, timestamp_ms, options))

    def notify(self, checkpoint_id, attempts=None) -> None:
        for attempt_id in self.attempts if attempts is None else attempts:
            where = self.graph.current(attempt_id).execution.location.resource_id
            self.tell(NotifyCheckpointComplete(where, (attempt_id,), checkpoint_id, 0))

    def abort(self, checkpoint_id, latest_id=-1) -> None:
        for attempt_id in self.attempts:
            where = self.graph.current(attempt_id).execution.location.resource_id
            self.tell(NotifyCheckpointAborted(where, (attempt_id,), checkpoint_id, latest_id, 0))

    def grant_what_came(self) -> None:
        """From here on rows make room for others, those that came before too."""
        self.grants = True
        for message in [one for one in self.heard if isinstance(one, DriverData)]:
            self.tell(DriverCredit(message.stream, message.attempt_id, 1))

    def cancel(self) -> None:
        for attempt_id in self.attempts:
            where = self.graph.current(attempt_id).execution.location.resource_id
            self.tell(CancelTask(where, attempt_id))

    def freeing(self, allocation_id):
        """What gives a slot of the first TaskManager back."""
        return FreeSlot(next(iter(self.managers)), allocation_id, "a test", TOKEN)

    def redeploy(self) -> None:
        """The next attempts of all tasks, where the former ones were."""
        for vertex in self.graph.vertices:
            resource_id = vertex.execution.location.resource_id
            deployment = self.deployments.of(vertex)
            number = deployment.attempt_id.attempt + 1
            attempt_id = AttemptId(deployment.attempt_id.execution_vertex_id, number)
            again = replace(deployment, attempt_id=attempt_id)
            self.managers[resource_id].handle(DeployTask(resource_id, again, TOKEN))

    def close(self) -> None:
        for manager in self.managers.values():
            manager.close()

    # ------------------------------------------------------------------ hearing

    def until(self, is_there) -> None:
        """Hear the tasks until `is_there()`. Raises: AssertionError: it does not come, or a task fails."""
        while not is_there():
            try:
                message = self.inbox.get(timeout=PATIENCE_S)
            except queue.Empty:
                raise AssertionError(f"nothing more comes; heard: {self.heard[-20:]}") from None
            self._hear(message)

    def hear_what_is_there(self) -> None:
        """And wait a little for more."""
        try:
            self._hear(self.inbox.get(timeout=0.02))
        except queue.Empty:
            return

    def until_running(self) -> None:
        """Or past that: a source without splits ends at once."""
        begun = {ExecutionState.RUNNING, ExecutionState.FINISHED}
        self.until(lambda: all(self.states.get(one) in begun for one in self.attempts))

    def until_held_up(self, attempts) -> None:
        """These tasks wait for room in their outputs."""
        self.until_all(attempts, lambda task: task.backpressured_ms or task.io().backpressured_ms)

    def until_all(self, attempts, is_so) -> None:
        """What no message tells of. Raises: AssertionError: it does not come to be."""
        tasks = [task for manager in self.managers.values() for task in manager.tasks()]
        wanted = [task for task in tasks if task.attempt_id in attempts]
        deadline = time.monotonic() + PATIENCE_S
        while not all(is_so(task) for task in wanted):
            assert time.monotonic() < deadline, "what these tasks should come to they do not"
            self.hear_what_is_there()

    def until_ended(self, state=ExecutionState.FINISHED) -> None:
        self.until(lambda: all(self.states.get(one) is state for one in self.attempts))

    def until_acknowledged(self, checkpoint_id, attempts=None):
        """Returns: by attempt, what each acknowledged."""
        wanted = set(self.attempts if attempts is None else attempts)
        self.until(lambda: wanted <= set(self.acknowledged(checkpoint_id)))
        return self.acknowledged(checkpoint_id)

    def acknowledged(self, checkpoint_id) -> dict:
        return {
            one.attempt_id: one
            for one in self.heard
            if isinstance(one, AcknowledgeCheckpoint) and one.checkpoint_id == checkpoint_id
        }

    def declined(self) -> list:
        return [one for one in self.heard if isinstance(one, DeclineCheckpoint)]

    def failure(self):
        """Of the first task that failed, once one has."""

        def failures():
            return [
                one.failure
                for one in self.heard
                if isinstance(one, TaskStateChanged) and one.failure is not None
            ]

        self.until(failures)
        return failures()[0]

    def checkpoint(self, checkpoint_id) -> CompletedCheckpoint:
        """What all have acknowledged, as the JobMaster would keep it."""
        acks = self.until_acknowledged(checkpoint_id)
        operators = []
        for job_vertex in self.graph.job_vertices:
            model = job_vertex.job_vertex
            states = [
                dict(acks[v.execution.attempt_id].state.operators) for v in job_vertex.vertices
            ]
            ended = [acks[v.execution.attempt_id].state.is_finished for v in job_vertex.vertices]
            has_state = any(any(one.handles) for state in states for one in state.values())
            operators += [
                OperatorCheckpoint(
                    one.uid,
                    one.name,
                    model.parallelism,
                    model.max_parallelism,
                    tuple(state.get(one.uid) for state in states),
                    is_fully_finished=all(ended) and not has_state,
                    is_at_end=all(ended),
                    coordinator_state=self.enumerated.get((checkpoint_id, one.uid)),
                )
                for one in model.operators
            ]
        return CompletedCheckpoint(
            checkpoint_id, JOB, CheckpointType.CHECKPOINT, 0, tuple(operators)
        )

    def _hear(self, message) -> None:
        self.heard.append(message)
        if isinstance(message, TaskStateChanged):
            self.states[message.attempt_id] = message.state
        elif isinstance(message, DriverData):
            self.rows += pickling.loads_records(message.payload)
            if self.grants and message.attempt_id in self.attempts:
                self.tell(DriverCredit(message.stream, message.attempt_id, 1))
        elif isinstance(message, SplitRequest) and self.feeds:
            (source,) = [one for one in self.sources if one.node_id == message.node_id]
            source.enumerator.handle_split_request(message.attempt_id.subtask, message.host)

    # ------------------------------------------------------------------ deploying

    def _sources(self, stream_graph) -> list:
        found = []
        for vertex in self.job_graph.vertices.values():
            for operator in vertex.operators:
                live = stream_graph.nodes[operator.node_id].operator
                if isinstance(live, SourceOperator):
                    node_id, uid = operator.node_id, operator.uid
                    made = Enumerating(self, vertex, node_id, uid, live.source)
                    state = {} if self.plan is None else dict(self.plan.coordinator_states)
                    if uid in state:
                        known = pickle.loads(state[uid])
                        made.enumerator = live.source.restore_enumerator(made, known)
                    else:
                        made.enumerator = live.source.create_enumerator(made)
                    made.enumerator.start()
                    found.append(made)
        return found

    def _deploy(self) -> None:
        locations = []
        for resource_id, manager in self.managers.items():
            locations.append(TaskManagerLocation(resource_id, "127.0.0.1", manager.data_plane.port))
            manager.handle(RegistrationAccepted(TOKEN))
            manager.handle(RequestSlot(resource_id, 0, SLOT, JOB, TOKEN))
            manager.handle(AnswerOffers(resource_id, (SLOT,), (), TOKEN))
            for key, data in self.job_graph.blobs.items():
                manager.handle(PutBlob(key, data))
        for vertex, location in zip(self.graph.vertices, itertools.cycle(locations)):
            vertex.execution.allocation_id = SLOT
            vertex.execution.location = location
            if self.plan is not None:
                vertex.execution.restore = self.plan.of(vertex.vertex_id)
            self.deployments.place(vertex)
        for vertex in self.graph.vertices:
            resource_id = vertex.execution.location.resource_id
            deployment = self.deployments.of(vertex)
            self.managers[resource_id].handle(DeployTask(resource_id, deployment, TOKEN))
