"""What a sink that dies at any moment has committed holds every record once, and nothing else is
left (docs/spec/sources-and-sinks.md#two-phase-commit, #writers-and-committers).
"""

import tempfile
from collections import Counter
from pathlib import Path

import sqlalchemy as sa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.common import Encoder
from penstock.connectors.file_system import BucketAssigner, FileSink
from penstock.connectors.sql_sink import SqlSink
from penstock.engine.runtime.operators import SinkOperator
from penstock.engine.runtime.records.frozen import plain_dumps
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.restoring import rescaled

ACTION = (
    st.integers(1, 4)  # records to write
    | st.just("prepare")  # a checkpoint that is never acknowledged
    | st.just("checkpoint")  # complete, but nobody is told
    | st.just("complete")  # complete, and all are told
    | st.just("notify one")  # complete, and only one subtask is told
    | st.tuples(st.just("crash"), st.integers(1, 3))
)


class _Job:
    """Records 0, 1, 2 and so on into all subtasks of a sink; a checkpoint remembers how far it came."""

    def __init__(self, path):
        self.path = path
        self.sink = self.make_sink()
        self.position = self.checkpoint_id = self.attempt = 0
        self.completed = None
        self.start(1)

    def make_sink(self):
        builder = FileSink.for_row_format(self.path, Encoder.simple_string_encoder())
        builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        return builder.build()

    def kill(self, writer):
        """As with a killed process: only the descriptors go."""
        for part in writer._open.values():
            part.output.file.close()

    def seen(self):
        return _lines(self.path)

    def leftovers(self):
        return [file.name for file in Path(self.path).iterdir() if file.name.startswith(".")]

    def start(self, parallelism):
        snapshots, restored_id = None, None
        self.position = 0
        if self.completed is not None:
            restored_id, self.position, states = self.completed
            snapshots = rescaled(states, parallelism)
        self.subtasks = []
        for subtask in range(parallelism):
            operator = SinkOperator(self.sink)
            if snapshots is not None:
                operator.restore(snapshots[subtask])
            op = OperatorHarness(
                operator, subtask=subtask, parallelism=parallelism, attempt=self.attempt,
                job_id="job", has_final_checkpoint=True,
                restored_checkpoint_id=restored_id,
            )  # fmt: skip
            self.subtasks.append(op)

    def crash(self, parallelism):
        for op in self.subtasks:
            self.kill(op.operator._writer)
        self.attempt += 1
        self.start(parallelism)

    def write(self, count):
        for _ in range(count):
            self.subtasks[self.position % len(self.subtasks)].feed([self.position])
            self.position += 1

    def checkpoint(self, *, is_complete):
        self.checkpoint_id += 1
        for op in self.subtasks:
            op.take(op.operator.prepare_snapshot_pre_barrier(self.checkpoint_id))
        if is_complete:
            states = [op.operator.snapshot().freeze(plain_dumps) for op in self.subtasks]
            self.completed = (self.checkpoint_id, self.position, states)

    def notify(self, count):
        for op in self.subtasks[:count]:
            op.operator.notify_checkpoint_complete(self.checkpoint_id)

    def do(self, action):
        if isinstance(action, int):
            self.write(action)
        elif isinstance(action, tuple):
            self.crash(action[1])
        else:
            self.checkpoint(is_complete=action != "prepare")
            self.notify({"complete": len(self.subtasks), "notify one": 1}.get(action, 0))


class _SqlJob(_Job):
    """The same into a table of a SQLite database, two rows in a piece."""

    def make_sink(self):
        self.url = f"sqlite:///{self.path}/test.db"
        self.look("CREATE TABLE numbers (n INTEGER)")
        builder = SqlSink.builder().set_url(self.url).set_table("numbers").set_columns(["n"])
        sink = builder.set_batch_size(2).build()
        sink.validate()
        return sink

    def look(self, text):
        engine = sa.create_engine(self.url, poolclass=sa.NullPool)
        with engine.begin() as connection:
            result = connection.execute(sa.text(text))
            return [row[0] for row in result] if result.returns_rows else []

    def kill(self, writer):
        """Nothing is open between two calls."""

    def seen(self):
        return self.look("SELECT n FROM numbers")

    def leftovers(self):
        return self.look("SELECT transaction_id FROM penstock_staged")


def check(make_job, actions):
    with tempfile.TemporaryDirectory() as path:
        job = make_job(path)
        for action in actions:
            job.do(action)
            seen = job.seen()
            assert max(Counter(seen).values(), default=1) == 1
            assert job.completed is not None or not seen
        job.do(3)
        job.do("complete")
        for op in job.subtasks:
            op.finish()
        assert sorted(job.seen()) == list(range(job.position))
        assert job.leftovers() == []


@settings(max_examples=60)
@example([("crash", 3), 4, ("crash", 1)])
@example([("crash", 3), 4, "prepare", ("crash", 1)])
@example([2, "notify one", 2, "prepare", ("crash", 2)])
@given(st.lists(ACTION, max_size=14))
def test_every_record_is_in_the_visible_files_once_whatever_dies_when(actions):
    check(_Job, actions)


@settings(max_examples=30)
@example([("crash", 3), 4, ("crash", 1)])
@example([("crash", 3), 4, "prepare", ("crash", 1)])
@example([2, "notify one", 2, "prepare", ("crash", 2)])
@given(st.lists(ACTION, max_size=14))
def test_every_record_is_in_the_table_once_whatever_dies_when(actions):
    check(_SqlJob, actions)


def _lines(path):
    return [
        int(line)
        for file in Path(path).iterdir()
        if not file.name.startswith(".")
        for line in file.read_text().splitlines()
    ]
