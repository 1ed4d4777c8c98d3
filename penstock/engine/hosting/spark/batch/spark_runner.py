"""Runs stages on Spark. A stage is a map stage that writes a shuffle; a stage without readers is a
Spark job.

Source: Spark's DAGScheduler.submitMapStage, PartitionerAwareUnionRDD, PartitionPruningRDD.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from py4j.java_gateway import JavaObject
from pyspark import RDD, Accumulator, Broadcast, SparkContext, cloudpickle
from pyspark.serializers import NoOpSerializer
from pyspark.sql import SparkSession

from penstock.engine.hosting.jobmanager.ha.packed_job import SubmittedJob
from penstock.engine.hosting.shipping.package_archive import ship
from penstock.engine.hosting.shipping.pickling import serialize
from penstock.engine.hosting.shipping.program_files import bring_files
from penstock.engine.hosting.shipping.worker_imports import Appended
from penstock.engine.hosting.spark.batch import spark_task
from penstock.engine.hosting.spark.batch.plan import Plan, Stage
from penstock.engine.hosting.spark.batch.runner import StageError, StageOrder, StageResult
from penstock.engine.hosting.spark.batch.spark_body import failure_in
from penstock.engine.model.ids import VertexId
from penstock.engine.model.messages import FailureInfo
from penstock.engine.model.messages.batch import AttemptSeen
from penstock.engine.model.states import ExecutionState

# ---------------------------------------------------------------------- spark attempts
# Reads the attempts of a job's tasks from Spark and reports them as events. Polled by the threads
# that wait.
#
# A vertex has one stage on its first run. When Spark has lost its output, it gets further stages
# in the jobs of its readers. All of them are recognised by the RDD that they compute. Source:
# Spark AppStatusStore, StageData, TaskData.


_STATES: Final = {
    "RUNNING": ExecutionState.RUNNING,
    "SUCCESS": ExecutionState.FINISHED,
    "FAILED": ExecutionState.FAILED,
    "KILLED": ExecutionState.CANCELED,
}
_MOST_TASKS: Final = 1 << 20
_BUS_S: Final = 5

_Subtask: TypeAlias = "tuple[VertexId, int]"


class SparkAttempts:
    """The attempts of all stages of one job. Reports each change of each attempt once. May be
    called from several threads.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._vertices: dict[int, VertexId] = {}
        self._stages: dict[int, VertexId | None] = {}
        self._numbers: dict[_Subtask, dict[int, int]] = defaultdict(dict)
        self._reported: dict[int, ExecutionState] = {}

    def expect(self, vertex_id: VertexId, rdd: int) -> None:
        """Stages that compute this RDD belong to the vertex."""
        with self._lock:
            self._vertices[rdd] = vertex_id

    def look(self, group: str, report: Callable[[AttemptSeen], None]) -> None:
        """Report what has changed in the Spark jobs of a group.

        Never raises. Stages that Spark does not know yet, or has forgotten, are left out.
        """
        seen: list[AttemptSeen] = []
        with self._lock:
            with contextlib.suppress(Exception):  # Py4J: the context was stopped.
                for stage_id, vertex_id in self._stages_of(group):
                    # Spark does not know the stage yet, or has forgotten it.
                    with contextlib.suppress(Exception):
                        seen.extend(self._seen_in(stage_id, vertex_id))
            for one in sorted(seen, key=lambda one: (one.vertex_id, one.subtask, one.attempt)):
                report(one)

    def look_at_last(self, group: str, report: Callable[[AttemptSeen], None]) -> None:
        """As `look`, when nothing of the group runs any more.

        Spark learns of its own tasks through a queue; this waits until the queue is empty.
        """
        # Py4J: the queue is still not empty, or the context was stopped.
        with contextlib.suppress(Exception):
            self._context._jsc.sc().listenerBus().waitUntilEmpty(_BUS_S * 1000)
        self.look(group, report)

    def _stages_of(self, group: str) -> Iterator[tuple[int, VertexId]]:
        """Return the stages of our vertices, in the order in which Spark made them."""
        tracker = self._context.statusTracker()
        found: set[int] = set()
        for job_id in tracker.getJobIdsForGroup(group):
            job = tracker.getJobInfo(job_id)
            found.update(job.stageIds if job is not None else ())
        for stage_id in sorted(found):
            if stage_id not in self._stages:
                with contextlib.suppress(Exception):  # Py4J: Spark does not know the stage yet.
                    self._stages[stage_id] = self._vertex_of(stage_id)
            vertex_id = self._stages.get(stage_id)
            if vertex_id is not None:
                yield stage_id, vertex_id

    def _vertex_of(self, stage_id: int) -> VertexId | None:
        """Return the vertex of a stage; None: the stage runs none of our subtasks."""
        rdds = self._store().lastStageAttempt(stage_id).rddIds()
        ids = [int(rdds.apply(place)) for place in range(rdds.size())]
        return next((self._vertices[rdd] for rdd in ids if rdd in self._vertices), None)

    def _seen_in(self, stage_id: int, vertex_id: VertexId) -> list[AttemptSeen]:
        found: list[AttemptSeen] = []
        news: dict[int, ExecutionState] = {}
        store = self._store()
        newest = int(store.lastStageAttempt(stage_id).attemptId())
        for stage_attempt in range(newest + 1):
            tasks = store.taskList(stage_id, stage_attempt, _MOST_TASKS)
            known = [tasks.apply(place) for place in range(tasks.size())]
            for task_id, data in sorted(((int(one.taskId()), one) for one in known), key=_first):
                reported = self._reported.get(task_id)
                seen = (
                    None
                    if reported and reported.is_terminal
                    else self._seen(vertex_id, task_id, data)
                )
                if seen is not None and seen.state is not reported:
                    found.append(seen)
                    news[task_id] = seen.state
        self._reported |= news
        return found

    def _seen(self, vertex_id: VertexId, task_id: int, data: Any) -> AttemptSeen | None:
        """Return the attempt's state. A subtask's attempts are numbered by their start, which is
        the order of Spark's task ids.
        """
        state = _STATES.get(data.status())
        if state is None:
            return None
        subtask = int(data.partitionId())
        numbers = self._numbers[vertex_id, subtask]
        attempt = numbers.setdefault(task_id, len(numbers))
        failure = _failure(data) if state is ExecutionState.FAILED else None
        is_speculative = bool(data.speculative())
        return AttemptSeen(vertex_id, subtask, attempt, state, failure, is_speculative)

    def _store(self) -> Any:
        return self._context._jsc.sc().statusStore()


def _first(pair: tuple[int, Any]) -> int:
    return pair[0]


def _failure(data: Any) -> FailureInfo:
    message = data.errorMessage()
    text = message.get() if message.isDefined() else "Spark does not say why the task failed"
    return failure_in(text) or FailureInfo("SparkTaskFailed", text)


# ---------------------------------------------------------------------- spark runner


_WATCH_S: Final = 0.2
_TRIES: Final = 4  # Spark itself tries a stage as often.
_CANNOT_GO_ON: Final = ("cannot rollback the", "Task with indeterminate results from old attempt")
_PARTITIONER: Final = 0x50E57
"""Identifies the partitioner of our shuffles: Spark treats two partitioners of equal value and size
as the same partitioning.
"""


class SparkRunner:
    """`runner.StageRunner` on a Spark session."""

    def __init__(self, spark: SparkSession, plan: Plan, job: SubmittedJob) -> None:
        """Raises: ConfigurationError: the program's archives or requirements cannot be shipped."""
        cloudpickle.register_pickle_by_value(spark_task)
        self._context: SparkContext = spark.sparkContext
        self._plan = plan
        self._job_name = job.graph.name
        files = bring_files(self._context, job.program)
        self._archives = ship(self._context, job.modules, files)
        self._shipped: list[Broadcast[Any]] = [self._archives.contents]
        self._shuffles: dict[VertexId, Any] = {}
        self._canceled: set[VertexId] = set()
        self._attempts = SparkAttempts(self._context)
        self._group = f"penstock-batch-{id(self):x}-{time.time_ns():x}"

    def run(self, order: StageOrder) -> StageResult:
        stage = order.stage
        group = f"{self._group}-{stage.vertex_id}"
        self._context.setJobGroup(
            group, f"{self._job_name}: {stage.vertex.name}", interruptOnCancel=True
        )
        with self._watching(order, group):
            for _ in range(_TRIES - 1):
                with contextlib.suppress(_CannotGoOn):
                    return self._try(order)
            return self._try(order)

    def _try(self, order: StageOrder) -> StageResult:
        """Raises: StageError. _CannotGoOn: input of the stage was lost, and would differ when it is
        made again.
        """
        stage = order.stage
        try:
            aside = None if stage.speaks_to_driver else self._accumulator()
            body = self._body(order, aside)
            return (
                self._run_map(stage, body, aside) if stage.outputs else self._run_last(stage, body)
            )
        except StageError:
            raise
        except Exception as error:  # Any error of Py4J or Spark: Spark has given up the stage.
            raise self._failed(stage, str(error)) from error

    def cancel(self, vertex_id: VertexId) -> None:
        self._canceled.add(vertex_id)
        with contextlib.suppress(Exception):  # A stopped context has no jobs left.
            self._context.cancelJobGroup(f"{self._group}-{vertex_id}")

    def close(self) -> None:
        """Drop all references to shuffles, so that Spark removes them."""
        self._shuffles.clear()
        for one in self._shipped:
            with contextlib.suppress(Exception):  # The session may be stopped already.
                one.destroy()

    # ------------------------------------------------------------------ a job as the lineage of a DataFrame

    def lineage(self, orders: Iterable[StageOrder]) -> RDD[bytes]:
        """Return the result of the last stage as Arrow messages that Spark can continue with.

        `orders`: in the plan's order. Nothing runs until somebody asks for the messages. Then Spark
        runs the stages, and runs again those whose results it has lost.
        """
        *stages, last = orders
        for order in stages:
            self._shuffles[order.stage.vertex_id] = self._shuffled(self._body(order, None))
        task = task_of(self._shipped_of(last)._replace(makes_frame=True), None)
        return self._inputs(last).mapPartitionsWithIndex(task, preservesPartitioning=True)

    # ------------------------------------------------------------------ the two kinds of stages

    def _run_last(self, stage: Stage, body: RDD[bytes]) -> StageResult:
        """Run a stage whose records only the driver reads."""
        self._attempts.expect(stage.vertex_id, body._jrdd.rdd().id())
        found = body.collect()
        return StageResult((), [bytes(one) for one in found[1::2]])

    def _run_map(
        self, stage: Stage, body: RDD[bytes], aside: Accumulator[list[bytes]] | None
    ) -> StageResult:
        jvm = self._context._jvm
        assert jvm is not None
        shuffled = self._shuffled(body)
        self._attempts.expect(stage.vertex_id, body._jrdd.rdd().id())
        dependency = shuffled.rdd().dependencies().head()
        future = self._context._jsc.sc().submitMapStage(dependency)
        jvm.scala.concurrent.Await.ready(future, jvm.scala.concurrent.duration.Duration.Inf())
        outcome = future.value().get()
        if outcome.isFailure():
            raise self._failed(stage, _text_of(outcome.failed().get()))
        # Fetched as one text, because reading each number would be a separate call to the JVM.
        listed_sizes = jvm.java.util.Arrays.toString(outcome.get().bytesByPartitionId())
        sizes = tuple(json.loads(listed_sizes))
        self._shuffles[stage.vertex_id] = shuffled
        if aside is not None:
            return StageResult(sizes, aside.value)
        reported = self._read((shuffled,), ((self._plan.driver_partition,),)).collect()
        return StageResult(sizes, [bytes(one) for one in reported])

    def _shuffled(self, body: RDD[bytes]) -> JavaObject:
        """Return the stage's shuffle. Spark runs it when it is submitted, or when a reader needs
        it.
        """
        body._bypass_serializer = True
        jvm = self._context._jvm
        assert jvm is not None
        pairs = jvm.PairwiseRDD(body._jrdd.rdd()).asJavaPairRDD()
        return pairs.partitionBy(jvm.PythonPartitioner(self._plan.partitions, _PARTITIONER))

    @contextlib.contextmanager
    def _watching(self, order: StageOrder, group: str) -> Generator[None, None, None]:
        """Report attempts while the stage runs. Repeat a cancel that came before Spark knew the
        stage.
        """
        is_over = threading.Event()

        def watch() -> None:
            while not is_over.wait(_WATCH_S):
                self._attempts.look(group, order.report)
                if order.stage.vertex_id in self._canceled:
                    self.cancel(order.stage.vertex_id)

        thread = threading.Thread(target=watch, name="penstock-stage-attempts", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            self._attempts.look_at_last(group, order.report)

    # ------------------------------------------------------------------ what a stage reads and runs

    def _accumulator(self) -> Accumulator[list[bytes]]:
        """Return an accumulator for the reports of tasks. If Spark runs a task twice, its last
        report counts.
        """
        return self._context.accumulator([], Appended())

    def _body(self, order: StageOrder, aside: Accumulator[list[bytes]] | None) -> RDD[bytes]:
        read, task = self._inputs(order), task_of(self._shipped_of(order), aside)
        return read.mapPartitionsWithIndex(task, preservesPartitioning=True)

    def _shipped_of(self, order: StageOrder) -> spark_task.Shipped:
        orders = self._context.broadcast(pickle.dumps(order.orders))
        self._shipped.append(orders)
        return spark_task.Shipped(self._archives, orders)

    def _inputs(self, order: StageOrder) -> RDD[bytes]:
        stage = order.stage
        if order.frame is not None:
            return order.frame.messages_of(stage.vertex.parallelism)
        if not stage.inputs:
            splits = [serialize(one) for one in order.splits]
            return self._context.parallelize(splits, len(splits))
        shuffles = tuple(self._shuffles[producer] for producer in stage.producers)
        read = self._read(shuffles, order.reads)
        # Spark gives the blocks of several tasks in any order, and the result of a subtask depends
        # on that order. A repeated subtask gives a different result, and a reader must not mix the
        # two. Because of the `sample` of all records, Spark repeats the whole stage.
        makers = sum(_makers_of(shuffle) for shuffle in shuffles)
        return read if makers == 1 else self._rdd(read._jrdd.sample(False, 1.0, 0))

    def _read(self, shuffles: Sequence[JavaObject], reads: Sequence[Sequence[int]]) -> RDD[bytes]:
        """Read these shuffles as if they were one: for each subtask its reduce partitions."""
        jvm = self._context._jvm
        assert jvm is not None
        whole = self._united(shuffles)
        tags = shuffles[0].kClassTag(), shuffles[0].vClassTag()
        parts = []
        for partitions, is_one_subtask in segments(reads):
            wanted = jvm.java.util.HashSet()
            for first, stop in without_gaps(partitions):
                wanted.addAll(jvm.java.util.stream.IntStream.range(first, stop).boxed().toList())
            is_wanted = jvm.scala.jdk.javaapi.CollectionConverters.asScala(wanted).toSet()
            pruned = jvm.org.apache.spark.rdd.PartitionPruningRDD.create(whole.rdd(), is_wanted)
            pairs = jvm.org.apache.spark.api.java.JavaPairRDD.fromRDD(pruned, *tags)
            parts.append(pairs.coalesce(1) if is_one_subtask else pairs)
        return self._rdd(jvm.PythonRDD.valueOfPair(self._united(parts)))

    def _united(self, rdds: Sequence[JavaObject]) -> JavaObject:
        """RDDs with our partitioner are united partition by partition; others are concatenated."""
        if len(rdds) == 1:
            return rdds[0]
        sc = self._context
        assert sc._gateway is not None
        assert sc._jvm is not None
        array = sc._gateway.new_array(sc._jvm.org.apache.spark.api.java.JavaPairRDD, len(rdds))
        for place, one in enumerate(rdds):
            array[place] = one
        return sc._jsc.union(array)

    def _rdd(self, java_rdd: JavaObject) -> RDD[bytes]:
        return RDD(java_rdd, self._context, NoOpSerializer())

    # ------------------------------------------------------------------ failures

    def _failed(self, stage: Stage, text: str) -> StageError:
        failure = self._failure(stage, text)
        is_over = stage.vertex_id in self._canceled or failure.is_user_code
        if not is_over and any(reported in text for reported in _CANNOT_GO_ON):
            return _CannotGoOn(failure)
        return StageError(failure)

    def _failure(self, stage: Stage, text: str) -> FailureInfo:
        if stage.vertex_id in self._canceled:
            return FailureInfo("JobCancelled", "the stage was cancelled")
        found = failure_in(text)
        if found is not None:
            return found
        return FailureInfo(
            "SparkStageFailed",
            f"Spark has given up the stage of '{stage.vertex.name}': {text.strip()}",
        )


class _CannotGoOn(StageError):
    """Spark cannot undo the stage's output. Penstock can try the stage again, because a result
    counts only when it is complete.
    """


def _makers_of(shuffle: JavaObject) -> int:
    """Return how many tasks write the shuffle."""
    return int(shuffle.rdd().dependencies().head().rdd().getNumPartitions())


def task_of(shipped: Any, aside: Any) -> Callable[[int, Any], Iterator[bytes]]:
    run_subtask = spark_task.run_subtask

    def run(index: int, records: Any) -> Any:
        return run_subtask(shipped, aside, index, records)

    run.__module__ = "__main__"  # Pickled by value, like everything in the Spark closure.
    return run


def segments(reads: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], bool]]:
    """Split the reads into lists of partitions that one RDD can give; the flag: they are all of one
    subtask.

    Subtasks with one partition each share a list while the partitions ascend, because a pruned RDD
    keeps the order of its partitions.
    """
    run: list[int] = []
    for partitions in reads:
        if len(partitions) == 1 and (not run or partitions[0] > run[-1]):
            run += partitions
            continue
        if run:
            yield run, False
        run = list(partitions) if len(partitions) == 1 else []
        if not run:
            yield list(partitions), True
    if run:
        yield run, False


def without_gaps(partitions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ascending numbers as half-open ranges (first, stop)."""
    first = stop = partitions[0]
    for partition in partitions:
        if partition != stop:
            yield first, stop
            first = partition
        stop = partition + 1
    yield first, stop


def _text_of(throwable: JavaObject) -> str:
    """Join the texts of a throwable and all its causes."""
    texts: list[str] = []
    while throwable is not None:
        texts.append(str(throwable.toString()))
        throwable = throwable.getCause()
    return "\n".join(texts)
