"""Rows that are copied into PostgreSQL are stored as SQLAlchemy's INSERT stores them, value for value."""

import datetime as dt
from contextlib import contextmanager
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.sql import rows as copying
from penstock.connectors.sql.rows import RowWriter, TableCopy
from penstock.connectors.sql.staged import Piece
from penstock.engine.model.errors import RefusedForGood
from tests.tools.connectors.sql_tables import Db, context, put

at = dt.datetime.fromisoformat
BERLIN = ZoneInfo("Europe/Berlin")
TYPES = (
    "SMALLINT", "INTEGER", "BIGINT", "REAL", "DOUBLE PRECISION", "NUMERIC", "NUMERIC(12, 3)",
    "TEXT", "VARCHAR(9)",
    "CHAR(9)", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP(3)", "TIMESTAMPTZ", "TIMESTAMPTZ(1)",
    "TIME", "TIMETZ",
    "UUID", "BYTEA", "JSON", "JSONB", "INTEGER[]", "TEXT[]", "INTERVAL", "mood", 'TEXT COLLATE "C"',
)  # fmt: skip
VALUES = {
    "int": (0, -1, 7, 32767, 32768, -(2**31), 2**53 + 1, 2**63 - 1, 2**63, 10**30, 10**400),
    "bool": (True, False),
    "float": (
        0.0, -0.0, 0.1, 2.5, -3.5, 1e15, 123456789.987654321, 1 / 3, 1e22, 1e-7, 3.5e38, 1e300,
        1e-50, 1e-40, 5e-324,
        16777217.0, 0.30000001192092893, float("nan"), float("inf"), float("-inf"),
    ),
    "Decimal": tuple(map(Decimal, (
        "0", "-0", "1.50", "12.3456", "1E+3", "1E-12", "123456789012.1", "NaN", "-NaN", "sNaN",
        "Infinity",
    ))),
    "str": (
        "", "a", "a\tb", "a\nb", "a\r\nb", "\\", "\\N", "\\.", "\\t", "é'\"%s", "\b\f\v",
        "\N{GRINNING FACE}", " a  ",
        "too long to fit", "1234567890   ", "happy", "1", "t", "2024-02-03",
        "2024-02-03 04:05:06+07", "04:05",
        "{1,2}", "null", "\x7f", "a\0b", "\ud800", "00000000-0000-0000-0000-000000000007",
    ),
    "bytes": (b"", b"\0\xff\\", b"\\x41", b"a\tb\nc", bytes(range(256))),
    "date": (dt.date.min, dt.date(2024, 2, 29), dt.date.max),
    "datetime": (
        at("0001-01-01"), at("2024-02-03T04:05:06"), at("2024-02-03T04:05:06.789999"),
        at("2024-03-31T02:30"),
        at("2024-10-27T02:30").replace(fold=1), at("9999-12-31T23:59:59.999999"),
    ),
    "datetime with a zone": (
        dt.datetime(2024, 2, 3, 4, 5, 6, 7, tzinfo=dt.UTC), dt.datetime(2024, 7, 3, 23, 5,
        tzinfo=BERLIN),
        dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=BERLIN), dt.datetime(1800, 1, 1,
        tzinfo=BERLIN),
        dt.datetime(2024, 2, 3, tzinfo=dt.timezone(dt.timedelta(hours=-5, minutes=-30,
        seconds=-1))),
    ),
    "time": (dt.time(0), dt.time(4, 5, 6, 700), dt.time.max),
    "time with a zone": (dt.time(4, 5, tzinfo=dt.UTC),),
    "timedelta": (dt.timedelta(0), dt.timedelta(days=-1, microseconds=1)),
    "UUID": (UUID(int=7),),
    "list": ([], [1, None, 3], ["a", "b\\", None], [[1], [2]]),
    "dict": ({}, {"a": [1, "\\\n\t"]}),
    "None": (None,),
}  # fmt: skip
SHORT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9)
DRAWN = {
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INTEGER": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "REAL": st.floats(width=32),
    "DOUBLE PRECISION": st.floats() | st.integers(-(2**70), 2**70),
    "NUMERIC": st.decimals() | st.integers() | st.floats(),
    "TEXT": SHORT,
    "VARCHAR(9)": SHORT,
    "CHAR(9)": SHORT,
    "BOOLEAN": st.booleans(),
    "DATE": st.dates(),
    "TIMESTAMP": st.datetimes(),
    "TIMESTAMP(3)": st.datetimes(),
    "TIMESTAMPTZ": st.datetimes(timezones=st.timezones()) | st.datetimes(),
    "TIME": st.times(),
    "UUID": st.uuids(),
    "BYTEA": st.binary(),
}
COPIED = {
    ("SMALLINT", "int"), ("INTEGER", "int"), ("BIGINT", "int"), ("REAL", "float"),
    ("DOUBLE PRECISION", "float"),
    ("DOUBLE PRECISION", "int"), ("NUMERIC", "Decimal"), ("NUMERIC", "int"), ("NUMERIC", "float"),
    ("TEXT", "str"),
    ("VARCHAR(9)", "str"), ("CHAR(9)", "str"), ("BOOLEAN", "bool"), ("DATE", "date"), ("TIMESTAMP",
    "datetime"),
    ("TIMESTAMPTZ", "datetime"), ("TIMESTAMPTZ", "datetime with a zone"), ("TIME", "time"),
    ("UUID", "UUID"),
    ("BYTEA", "bytes"), ("JSON", "dict"), ("JSONB", "dict"), ("JSON", "list"), ("JSONB", "str"),
}  # fmt: skip


class Both:
    """A table of one column, and both ways to write into it."""

    def __init__(self, connection, column):
        self.connection = connection
        connection.exec_driver_sql("CREATE TEMPORARY TABLE one (at_ SERIAL, x " + column + ")")
        self.table = sa.Table("one", sa.MetaData(), autoload_with=connection)
        self.writer = RowWriter(self.table, ["x"], (), connection.dialect)
        self.copy = TableCopy(self.table, ["x"], connection.dialect)

    def inserted(self, values):
        """As SQLAlchemy does."""
        statement = sa.insert(self.table).inline()
        return self._stored(lambda: self.connection.execute(statement, [{"x": x} for x in values]))

    def written(self, values):
        piece = Piece.of([(value,) for value in values])
        return self._stored(lambda: self.writer.write(self.connection, [piece]))

    def is_copied(self, values):
        return self.copy.texts(Piece.of([(value,) for value in values])) is not None

    def _stored(self, write):
        """What is in the table then, as text; the class of the error, if the values are refused."""
        nested = self.connection.begin_nested()
        try:
            write()
            rows = self.connection.exec_driver_sql("SELECT x::TEXT FROM one ORDER BY at_").all()
            return [row[0] for row in rows]
        except (sa.exc.StatementError, LookupError, TypeError, ValueError) as error:
            cause = getattr(error, "orig", None)
            return "refused", getattr(cause, "sqlstate", None) and cause.sqlstate[:2]
        finally:
            nested.rollback()


@contextmanager
def both_into(url, column):
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection, connection.begin() as begun:
        connection.exec_driver_sql("SET TIME ZONE 'Europe/Berlin'")
        connection.exec_driver_sql("CREATE TYPE pg_temp.mood AS ENUM ('happy', 'sad')")
        yield Both(connection, column.replace("mood", "pg_temp.mood"))
        begun.rollback()


@pytest.mark.parametrize("column", TYPES)
def test_every_kind_of_value_is_stored_or_refused_as_by_an_insert(postgres_url, column):
    with both_into(postgres_url, column) as both:
        for values in VALUES.values():
            for value in values:
                inserted, written = both.inserted([value]), both.written([value])
                if (
                    "refused" in inserted
                ):  # who finds it, the driver or the server, tells it its way
                    assert written[0] == "refused", (value, inserted, written)
                else:
                    assert written == inserted, value
            stored = [value for value in values if "refused" not in both.inserted([value])]
            if stored:
                mixed = [*stored, None, *stored]
                assert both.written(mixed) == both.inserted(mixed)


@pytest.mark.parametrize("column", DRAWN)
def test_values_that_are_drawn_are_stored_as_by_an_insert(postgres_url, column):
    with both_into(postgres_url, column) as both:

        @settings(max_examples=40)
        @given(st.lists(st.none() | DRAWN[column], min_size=1, max_size=20))
        def check(values):
            assert both.written(values) == both.inserted(values)

        check()


@pytest.mark.parametrize(("column", "kind"), sorted(COPIED))
def test_usual_values_are_copied(postgres_url, column, kind):
    with both_into(postgres_url, column) as both:
        usual = [value for value in VALUES[kind] if str(value) not in {"-NaN", "sNaN"}]
        stored = [value for value in usual if "refused" not in both.inserted([value])]
        assert stored
        assert both.is_copied([*stored, None])


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("TIMESTAMP", VALUES["datetime with a zone"]),
        ("INTEGER", VALUES["bool"]),
        ("TEXT", VALUES["float"]),
        ("INTEGER[]", [[1]]),
        ("BIGINT", [1, 1.5]),
        ("REAL", [1e300]),
    ],
)
def test_what_a_copy_would_store_otherwise_is_inserted(postgres_url, column, values):
    with both_into(postgres_url, column) as both:
        assert not both.is_copied(list(values))


# ------------------------------------------------------------------ tables that COPY treats otherwise


def copied(monkeypatch):
    """The pieces that are copied from now on."""
    found = []
    copy = TableCopy.copy

    def noted(self, connection, pieces, into=None):
        copy(self, connection, (found.append(piece) or piece for piece in pieces), into)

    monkeypatch.setattr(TableCopy, "copy", noted)
    return found


def commit(db, *values, **settings):
    sink = db.sink(**settings)
    writer = sink.create_writer(context())
    put(writer, *values)
    sink.create_committer().commit(writer.prepare_checkpoint(1))


@pytest.fixture
def empty_url(postgres_url):
    engine = sa.create_engine(postgres_url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
    return postgres_url


def test_names_that_have_to_be_quoted(empty_url, monkeypatch):
    found = copied(monkeypatch)
    db = Db(empty_url, 'CREATE TABLE "a ""%%""%" (name TEXT, n INTEGER)')
    sink = db.sink('a "%%"%')
    writer = sink.create_writer(context())
    put(writer, ("a", 1))
    sink.create_committer().commit(writer.prepare_checkpoint(1))
    assert db.run('SELECT * FROM "a ""%%""%"') == [("a", 1)]
    assert len(found) == 1


def test_pieces_go_in_one_statement_up_to_one_that_is_inserted(empty_url, monkeypatch):
    found = copied(monkeypatch)
    db = Db(empty_url, "CREATE TABLE counts (name TEXT, n INTEGER)")
    commit(db, ("a", 1), ("b", 2), ("c", True), ("d", 4), set_batch_size=1)
    assert db.rows() == [("a", 1), ("b", 2), ("c", 1), ("d", 4)]
    assert len(found) == 3


TRIGGER = """\
CREATE TABLE counts (name TEXT, n INTEGER);
CREATE FUNCTION doubled() RETURNS trigger LANGUAGE plpgsql
  AS 'BEGIN NEW.n := NEW.n * 2; RETURN NEW; END';
CREATE TRIGGER doubled BEFORE INSERT ON counts FOR EACH ROW EXECUTE FUNCTION doubled()"""
RULE = """\
CREATE TABLE below (name TEXT, n INTEGER);
CREATE TABLE counts (name TEXT, n INTEGER);
CREATE RULE otherwise AS ON INSERT TO counts
  DO INSTEAD INSERT INTO below VALUES (NEW.name, NEW.n * 2)"""
VIEW = "CREATE TABLE below (name TEXT, n INTEGER); CREATE VIEW counts AS SELECT * FROM below"
PARTITIONS = """\
CREATE TABLE counts (name TEXT, n INTEGER) PARTITION BY LIST (name);
CREATE TABLE counts_a PARTITION OF counts FOR VALUES IN ('a');
CREATE TABLE counts_b PARTITION OF counts FOR VALUES IN ('b')"""


@pytest.mark.parametrize(
    ("table", "holder", "rows", "copies"),
    [
        (TRIGGER, "counts", [("a", 2), ("b", 4)], 1),
        (RULE, "below", [("a", 2), ("b", 4)], 0),
        (VIEW, "below", [("a", 1), ("b", 2)], 0),
        (PARTITIONS, "counts_b", [("b", 2)], 1),
    ],
    ids=["trigger", "rule", "view", "partitions"],
)
def test_a_table_that_is_more_than_rows(empty_url, monkeypatch, table, holder, rows, copies):
    found = copied(monkeypatch)
    db = Db(empty_url, table)
    commit(db, ("a", 1), ("b", 2))
    assert sorted(db.run(f"SELECT * FROM {holder}")) == rows
    assert len(found) == copies


def test_row_security_decides_about_each_row(empty_url, monkeypatch):
    found = copied(monkeypatch)
    db = Db(empty_url, "CREATE TABLE counts (name TEXT, n INTEGER)")
    db.run(
        "DROP ROLE IF EXISTS writer; CREATE ROLE writer LOGIN; "
        "GRANT ALL ON SCHEMA public TO writer; "
        "GRANT ALL ON counts TO writer; ALTER TABLE counts ENABLE ROW LEVEL SECURITY; "
        "CREATE POLICY few ON counts WITH CHECK (n < 5)"
    )
    db.url = empty_url.replace("penstock@", "writer@")
    commit(db, ("a", 1))
    assert db.rows() == [("a", 1)]
    with pytest.raises(RefusedForGood, match="row-level security policy"):
        commit(db, ("b", 7))
    assert db.rows() == [("a", 1)]
    assert found == []


def test_an_identity_that_is_always_generated_is_refused_as_by_an_insert(empty_url):
    db = Db(empty_url, "CREATE TABLE counts (name TEXT, n INTEGER GENERATED ALWAYS AS IDENTITY)")
    with pytest.raises(RefusedForGood, match="cannot insert a non-DEFAULT value"):
        commit(db, ("a", 1))


def test_without_the_right_to_temporary_tables_rows_replace_too(empty_url, monkeypatch):
    found = copied(monkeypatch)
    db = Db(empty_url, "CREATE TABLE counts (name TEXT PRIMARY KEY, n INTEGER)")
    commit(db, ("a", 1), set_key_columns=["name"])
    assert len(found) == 1
    db.run(
        "DROP ROLE IF EXISTS keyed; CREATE ROLE keyed LOGIN; GRANT ALL ON SCHEMA public TO keyed; "
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO keyed; "
        "REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC"
    )
    try:
        db.url = empty_url.replace("penstock@", "keyed@")
        commit(db, ("a", 2), ("b", 3), set_key_columns=["name"])
    finally:
        db.run("GRANT TEMPORARY ON DATABASE postgres TO PUBLIC")
    assert db.rows() == [("a", 2), ("b", 3)]
    assert len(found) == 1


def test_keys_that_only_the_database_finds_equal_replace_each_other(empty_url):
    db = Db(empty_url, "CREATE TABLE counts (name CHAR(3) PRIMARY KEY, n INTEGER)")
    commit(db, ("a", 1), ("b", 2), ("a ", 3), set_key_columns=["name"])
    assert db.rows() == [("a  ", 3), ("b  ", 2)]
    commit(db, ("b ", 4), ("b", 5), ("c", 6), set_key_columns=["name"], set_batch_size=2)
    assert db.rows() == [("a  ", 3), ("b  ", 5), ("c  ", 6)]


def test_staged_pieces_are_not_compressed_a_second_time(empty_url):
    db = Db(empty_url)
    db.sink()
    text = "SELECT attstorage FROM pg_attribute WHERE attname = 'payload' AND attrelid = "
    assert db.run(f"{text}'penstock_staged'::regclass") == [("e",)]


def test_a_serializer_of_the_users_own_is_left_to_the_driver(postgres_url):
    engine = sa.create_engine(
        postgres_url, poolclass=sa.NullPool, json_serializer=lambda value: '"own"'
    )
    with engine.begin() as connection:
        both = Both(connection, "JSONB")
        assert not both.is_copied([{"a": 1}])
        assert both.written([{"a": 1}]) == ['"own"']
        connection.exec_driver_sql("DROP TABLE one")


def test_messages_have_a_bounded_number_of_rows(monkeypatch):
    monkeypatch.setattr(copying, "ROWS_AT_ONCE", 2)
    assert list(copying._lines([["a", "b", "c"], ["1", "2", "\\N"]])) == [
        "a\t1\nb\t2\n",
        "c\t\\N\n",
    ]
