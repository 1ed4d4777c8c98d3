"""Statements for many rows store what SQLAlchemy's own execution of them stores."""

import datetime as dt
import warnings
from decimal import Decimal
from uuid import UUID

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.sql.rows import ManyRows, RowWriter
from penstock.connectors.sql.staged import Piece
from tests.tools.connectors.sql_tables import Db

TYPES = (
    "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE PRECISION", "NUMERIC(12, 3)", "TEXT",
    "VARCHAR(9)", "CHAR(9)",
    "BOOLEAN", "DATE", "DATETIME", "TIMESTAMP NULL", "TIME", "BLOB", "JSON",
)  # fmt: skip
AT = dt.datetime.fromisoformat("2024-02-03T04:05:06")
VALUES = (
    0, -7, 2**31, 2**70, True, False, 0.0, -0.0, 0.1, 1e300, float("inf"), Decimal("1.50"),
    Decimal("12.3456"),
    "", "a", "é'\"%s\\\t\n", "2024-02-03", "2024-02-03 04:05:06", "too long to fit", b"",
    b"\0\xff\\", dt.date.max, dt.date(2024, 2, 29),
    AT, AT.replace(microsecond=789), dt.datetime.fromisoformat("0001-02-03"),
    AT.replace(tzinfo=dt.UTC), dt.time(4, 5, 6, 700), dt.time(4, 5, tzinfo=dt.UTC),
    UUID(int=7), [], [1, None], {"a": "b"}, None,
)  # fmt: skip


class Both:
    """A table of one column, and both ways to write into it."""

    def __init__(self, connection, column):
        self.connection = connection
        connection.exec_driver_sql(f"CREATE TABLE one (x {column})")
        self.table = sa.Table("one", sa.MetaData(), autoload_with=connection)
        self.writer = RowWriter(self.table, ["x"], (), connection.dialect)

    def inserted(self, values):
        """As SQLAlchemy does."""
        statement = sa.insert(self.table).inline()
        return self._stored(lambda: self.connection.execute(statement, [{"x": x} for x in values]))

    def written(self, values):
        piece = Piece.of([(value,) for value in values])
        return self._stored(lambda: self.writer.write(self.connection, [piece]))

    def _stored(self, write):
        """What is in the table then; what the values are refused with."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a Decimal that SQLite stores as a float
                write()
            text = "CAST(x AS CHAR)" if self.connection.dialect.name == "mariadb" else "TYPEOF(x)"
            rows = self.connection.exec_driver_sql(f"SELECT {text}, x FROM one").all()
            return [tuple(row) for row in rows]
        except Exception as error:
            cause = getattr(error, "orig", None) or error
            return "refused", type(cause), str(cause)
        finally:
            self.connection.exec_driver_sql("DELETE FROM one")


@pytest.mark.server
@pytest.mark.parametrize("kind", ["sqlite", "mariadb"])
@pytest.mark.parametrize("column", TYPES)
def test_every_kind_of_value_is_stored_or_refused_as_by_sqlalchemy(kind, column, request, tmp_path):
    is_file = kind == "sqlite"
    url = f"sqlite:///{tmp_path}/one.db" if is_file else request.getfixturevalue("mariadb_url")
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection, connection.begin():
        connection.exec_driver_sql("DROP TABLE IF EXISTS one")
        both = Both(connection, column)
        # PyMySQL makes as many zeros of a number for a BLOB.
        values = [one for one in VALUES if column != "BLOB" or type(one) is not int]
        for value in values:
            assert both.written([value]) == both.inserted([value]), value
        stored = [value for value in values if "refused" not in both.inserted([value])]
        assert both.written(stored) == both.inserted(stored)
        connection.exec_driver_sql("DROP TABLE one")


@pytest.mark.parametrize(("column", "drawn"), [("TIMESTAMP", st.datetimes()), ("DATE", st.dates())])
def test_drawn_times_are_stored_in_sqlite_as_by_sqlalchemy(tmp_path, column, drawn):
    engine = sa.create_engine(f"sqlite:///{tmp_path}/one.db", poolclass=sa.NullPool)
    with engine.connect() as connection, connection.begin():
        both = Both(connection, column)

        @given(st.lists(st.none() | drawn, min_size=1))
        def check(values):
            assert both.written(values) == both.inserted(values)

        check()


def test_columns_with_strange_names_and_another_order(url):
    quote = "`" if url.startswith("mariadb") else '"'
    names = ["b c", "a%(x)s", "d:e", "select"]
    columns = ", ".join(f"{quote}{name}{quote} INTEGER" for name in names)
    db = Db(url, f"CREATE TABLE strange ({columns})")
    table = sa.Table("strange", sa.MetaData(), autoload_with=db.engine)
    order = [names[place] for place in (2, 0, 3, 1)]
    # Lists are inserted, on PostgreSQL too: here through a class that it does not copy.
    piece = Piece.of([(3, 1, True, 2), (30, 10, False, 20)])
    with db.engine.begin() as connection:
        RowWriter(table, order, (), connection.dialect).write(connection, [piece])
    with db.engine.begin() as connection:
        found = connection.execute(sa.select(table)).all()
    assert sorted(map(tuple, found)) == [(1, 2, 3, 1), (10, 20, 30, 0)]


def test_a_driver_that_is_not_known_is_left_to_sqlalchemy(tmp_path):
    db = Db(f"sqlite:///{tmp_path}/one.db")
    table = sa.Table("counts", sa.MetaData(), autoload_with=db.engine)
    with db.engine.begin() as connection:
        connection.dialect.driver = "other"
        many = ManyRows(table.insert(), ["n", "name"], connection.dialect)
        many.execute(connection, Piece.of([(1, "a"), (2, "b")]))
    assert db.rows() == [("a", 1), ("b", 2)]
