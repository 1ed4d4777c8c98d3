"""Two attempts of one subtask at once, as speculation has them: one wins, and its output is all that there is."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.common import Encoder, Types
from penstock.connectors.file_system import FileSink
from penstock.datastream import MapFunction, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.engine.compiler.job_graph_builder import build_job_graph
from penstock.engine.hosting.jobmanager.coordinators.coordinators import (
    commit_all,
    committers_of,
    coordinated_vertices,
    job_prefix_of,
)
from penstock.engine.hosting.shipping.pickling import deserialize, serialize
from penstock.engine.hosting.spark.batch.batch_task import BatchTask
from penstock.engine.hosting.spark.batch.job import splits_of
from penstock.engine.hosting.spark.batch.plan import Orders, Report
from penstock.engine.model.ids import JobId
from penstock.engine.model.messages import Committable
from penstock.engine.runtime.batch.graph import in_batch
from penstock.engine.runtime.sources.contract import Source
from tests.tools.hosting.fake_executor import FakeExecutor
from tests.tools.output_files import files_below

JOB = JobId("a" * 32)
LINES = [f"line {number}" for number in range(20_000)]
FIRST_WAITS, SECOND_IS_OVER = threading.Event(), threading.Event()


class Overlaps(MapFunction):
    """The first attempt stands still in the middle until the second one is over."""

    def open(self, runtime_context):
        self.attempt = runtime_context.get_attempt_number()

    def map(self, value):
        if self.attempt == 0 and value == LINES[10_000]:
            FIRST_WAITS.set()
            assert SECOND_IS_OVER.wait(30)
        return value


@pytest.mark.parametrize("winner", [0, 1])
def test_the_winners_files_are_all_that_is_left(tmp_path, winner):
    FIRST_WAITS.clear()
    SECOND_IS_OVER.clear()
    executor = FakeExecutor()
    env = StreamExecutionEnvironment.get_execution_environment().use_executor(executor)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH).set_parallelism(1)
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()
    env.from_collection(LINES, Types.STRING()).map(Overlaps(), Types.STRING()).sink_to(sink)
    env.execute("attempts")
    graph = in_batch(executor.graph)
    job_graph = build_job_graph(graph, JOB, serialize)
    (vertex,) = job_graph.vertices.values()
    places = coordinated_vertices(job_graph.vertices, graph.nodes)
    (source,) = [one.coordinator for one in places if isinstance(one.coordinator, Source)]
    orders = Orders(job_graph.blobs[vertex.chain_blob], "attempts", "attempts", JOB, 1, 1, {}, 0)
    (splits,) = splits_of(source, "lines", 1)

    def run(attempt):
        *_, (_, report) = BatchTask(orders, 0, attempt, iter([serialize(splits)])).run()
        return pickle.loads(report)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(run, 0)
        assert FIRST_WAITS.wait(30)
        second = run(1)
        SECOND_IS_OVER.set()
        reports: list[Report] = [first.result(30), second]
    finals = {deserialize(payload)[1] for report in reports for _, payload in report.committables}
    assert len(finals) == 1  # what becomes visible does not tell who won
    committables = [Committable(*one) for one in reports[winner].committables]
    commit_all(committers_of(places), committables, job_prefix_of(JOB))
    files = files_below(tmp_path)
    assert [path.read_text().splitlines() for path in files] == [LINES]
