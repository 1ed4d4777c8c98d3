"""SqlSink exactly once, beside the quickest that a driver does with the same values into the same table.

One subtask, played by hand in one process, without Spark: Rows in batches of 4,096, a checkpoint and its commit after every 200,000.
Rows are made ahead of the clock, of all sides. Floor on PostgreSQL: psycopg's `COPY ... FROM STDIN` with `write_row`, on SQLite
`executemany` of Python's sqlite3, both with a commit after every 200,000 rows. The floors stage nothing: a row of theirs is written
once. The PostgreSQL server is one of the tests', without syncs. Goals: 0.3 of COPY, 0.7 of `executemany`. `--events`: rows, default
600,000. "By key": rows replace those with the same key, in a table with as many rows as a checkpoint has.
"""

import datetime as dt
import gc
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure
from penstock.common import Row, Types
from penstock.common.typeinfo import RowTypeInfo
from penstock.connectors.sql_sink import SqlSink
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.sink import WriterContext
from tests.tools.postgres import postgres_server

ABOUT = __doc__.split("\n\n", maxsplit=1)[1].strip()
ROWS = 600_000
ROWS_OF_CHECKPOINT = 200_000
ROWS_OF_BATCH = 4096
AT = dt.datetime.fromisoformat("2024-01-01")


@dataclass(frozen=True)
class Case:
    """A table, and the values of one of its rows by the row's number."""

    name: str
    columns: str
    row_type: RowTypeInfo
    values: Callable[[int], tuple[Any, ...]]
    keys: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return list(self.row_type.get_field_names())

    def checkpoints(self, rows: int) -> Iterator[list[tuple[Any, ...]]]:
        for begin in range(0, rows, ROWS_OF_CHECKPOINT):
            yield [self.values(n) for n in range(begin, min(begin + ROWS_OF_CHECKPOINT, rows))]


COUNTS = Case(
    "word, n",
    "word VARCHAR(80), n BIGINT",
    Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()]),
    lambda n: (f"word {n % 1000}", n),
)
ORDERS = Case(
    "id, name, price, at",
    "id BIGINT, name VARCHAR(80), price DOUBLE PRECISION, at TIMESTAMP",
    Types.ROW_NAMED(
        ["id", "name", "price", "at"],
        [Types.LONG(), Types.STRING(), Types.DOUBLE(), Types.SQL_TIMESTAMP()],
    ),
    lambda n: (n, f"name {n % 1000}", n * 0.25, AT + dt.timedelta(seconds=n)),
)
KEYED = Case(
    "id, name, price, at by key",
    ORDERS.columns.replace("BIGINT,", "BIGINT PRIMARY KEY,", 1),
    ORDERS.row_type,
    lambda n: (n % ROWS_OF_CHECKPOINT, *ORDERS.values(n)[1:]),
    ("id",),
)


def measure(rows: int | None, runs: int) -> list[Figure]:
    rows = rows or ROWS
    figures = []
    with tempfile.TemporaryDirectory() as folder, postgres_server() as url:
        sqlite = f"{folder}/floor.db", f"sqlite:///{folder}/sink.db"
        for case in (ORDERS, COUNTS, KEYED):
            copy, many = (_CopyFloor(url, case), _ManyFloor(sqlite[0], case))
            figures += [
                _figure(f"sql_sink PostgreSQL {case.name}", url, case, copy, rows, runs),
                _figure(f"sql_sink SQLite {case.name}", sqlite[1], case, many, rows, runs),
            ]
            for path in Path(folder).iterdir():
                path.unlink()
    return figures


def _figure(name: str, url: str, case: Case, floor: "_Floor", rows: int, runs: int) -> Figure:
    _sink_rate(
        url, case, rows=min(rows, ROWS_OF_CHECKPOINT)
    )  # imports, and the server's first pages
    pairs = [(_sink_rate(url, case, rows), floor.rate(rows)) for _ in range(runs)]
    values, floors = zip(*pairs, strict=True)
    settings = {"rows": rows, "rows of a checkpoint": ROWS_OF_CHECKPOINT, "floor": floor.name}
    return Figure(name, values, "rows/s", floors, settings)


def _sink_rate(url: str, case: Case, rows: int) -> float:
    _make_anew(url, case)
    builder = SqlSink.builder().set_url(url).set_table("measured")
    sink = (builder.set_key_columns(case.keys) if case.keys else builder).build()
    sink.validate()
    writer = sink.create_writer(WriterContext(0, 1, 0, "job", "job", case.row_type))
    committer = sink.create_committer()
    assert committer is not None, "an SqlSink that writes exactly once has a committer"
    seconds = 0.0
    for number, values in enumerate(case.checkpoints(rows), 1):
        records = [Row(**dict(zip(case.names, row, strict=True))) for row in values]
        batches = [
            RowBatch(records[at : at + ROWS_OF_BATCH])
            for at in range(0, len(records), ROWS_OF_BATCH)
        ]
        gc.collect()
        begin = time.perf_counter()
        for batch in batches:
            writer.write(batch, 0)
        committer.commit(writer.prepare_checkpoint(number))
        seconds += time.perf_counter() - begin
    writer.close()
    committer.close()
    return rows / seconds


def _make_anew(url: str, case: Case) -> None:
    import sqlalchemy as sa

    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS measured"))
        connection.execute(sa.text(f"CREATE TABLE measured ({case.columns})"))


class _Floor:
    """Writes the same rows by the driver alone."""

    name = ""

    def __init__(self, where: str, case: Case) -> None:
        self._where = where
        self._case = case

    def rate(self, rows: int) -> float:
        seconds = 0.0
        with closing(self._connected()) as connection:
            for statement in ("DROP TABLE IF EXISTS floor", self._table()):
                connection.execute(statement)
            connection.commit()
            for values in self._case.checkpoints(rows):
                gc.collect()
                begin = time.perf_counter()
                self._write(connection, values)
                connection.commit()
                seconds += time.perf_counter() - begin
        return rows / seconds

    def _table(self) -> str:
        return f"CREATE TABLE floor ({self._case.columns})"

    def _connected(self) -> Any:
        raise NotImplementedError

    def _write(self, connection: Any, values: Sequence[tuple[Any, ...]]) -> None:
        raise NotImplementedError


class _CopyFloor(_Floor):
    """By key: into a table beside it, and from there in one statement."""

    name = "COPY"

    def _connected(self) -> Any:
        import psycopg

        return psycopg.connect(self._where.replace("+psycopg", ""))

    def _write(self, connection: Any, values: Sequence[tuple[Any, ...]]) -> None:
        into = "beside" if self._case.keys else "floor"
        if self._case.keys:
            connection.execute(
                "CREATE TEMP TABLE beside ON COMMIT DROP AS SELECT * FROM floor WITH NO DATA"
            )
        with connection.cursor().copy(f"COPY {into} FROM STDIN") as copy:
            for row in values:
                copy.write_row(row)
        if self._case.keys:
            connection.execute(f"INSERT INTO floor SELECT * FROM beside {_replacing(self._case)}")


class _ManyFloor(_Floor):
    name = "executemany"

    def _connected(self) -> Any:
        return sqlite3.connect(self._where)

    def _write(self, connection: Any, values: Sequence[tuple[Any, ...]]) -> None:
        marks = ", ".join("?" for _ in self._case.names)
        end = _replacing(self._case) if self._case.keys else ""
        connection.executemany(f"INSERT INTO floor VALUES ({marks}) {end}", values)


def _replacing(case: Case) -> str:
    changed = ", ".join(f"{name} = excluded.{name}" for name in case.names if name not in case.keys)
    return f"ON CONFLICT ({', '.join(case.keys)}) DO UPDATE SET {changed}"
