"""The user's side of a SQL sink: makes the table, looks into it, plays the task."""

import sqlalchemy as sa

from penstock.common import Row, Types
from penstock.connectors.sql_sink import SqlSink
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.sink import WriterContext

PAIRS = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])


class Db:
    """The user's side: makes the table, looks into it."""

    def __init__(self, url, table="CREATE TABLE counts (name VARCHAR(80), n INTEGER)"):
        self.url = url
        self.engine = sa.create_engine(url, poolclass=sa.NullPool)
        self.run(table)

    def run(self, text):
        with self.engine.begin() as connection:
            result = connection.execute(sa.text(text))
            return [tuple(row) for row in result] if result.returns_rows else []

    def rows(self):
        return sorted(self.run("SELECT * FROM counts"))

    def staged(self):
        text = "SELECT subtask, attempt, checkpoint_id FROM penstock_staged"
        return sorted(self.run(text), key=str)

    def sink(self, table="counts", **settings):
        builder = SqlSink.builder().set_url(self.url).set_table(table)
        for name, value in settings.items():
            getattr(builder, name)(value)
        sink = builder.build()
        sink.validate()
        return sink


def context(subtask=0, attempt=0, parallelism=1, job="job-1", restored=None, input_type=PAIRS):
    return WriterContext(
        subtask=subtask, parallelism=parallelism, attempt=attempt, job_prefix=job, attempt_prefix=job[:4],
        input_type=input_type, restored_checkpoint_id=restored,
    )  # fmt: skip


def put(writer, *values):
    writer.write(RowBatch([Row(name=name, n=n) for name, n in values]), 0)


def stage(writer):
    """Stages what the writer has, as if it were full."""
    writer._flush()
    writer._stage(None)
