"""What does not fit a table is told at submit: fields without a column, types, keys without an index. On three real databases."""

import pytest
import sqlalchemy as sa

from penstock.common import Types
from penstock.connectors.sql.checks import is_unique
from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.model.errors import ConfigurationError
from tests.tools.connectors.sql_tables import Db


def named(**fields):
    return Types.ROW_NAMED(list(fields), list(fields.values()))


def test_a_field_without_a_column_is_refused_at_submit(url):
    sink = Db(url, "CREATE TABLE counts (name VARCHAR(80), amount INTEGER)").sink()
    text = r"it has no column 'ammount'.*Its columns: \['name', 'amount'\]"
    with pytest.raises(ConfigurationError, match=text):
        sink.validate_input(named(name=Types.STRING(), ammount=Types.INT()))
    sink.validate_input(named(name=Types.STRING(), amount=Types.INT()))


def test_a_field_without_a_column_is_refused_with_key_columns_too(url):
    db = Db(url, "CREATE TABLE counts (name VARCHAR(80) PRIMARY KEY, amount INTEGER)")
    sink = db.sink(set_key_columns=["name"])
    with pytest.raises(ConfigurationError, match="it has no column 'ammount'"):
        sink.validate_input(named(name=Types.STRING(), ammount=Types.INT()))


def test_another_case_is_named(url):
    sink = Db(url).sink()
    with pytest.raises(ConfigurationError, match=r"no column 'N' \(it has 'n'"):
        sink.validate_input(named(name=Types.STRING(), N=Types.INT()))


def test_a_program_is_refused_before_it_runs(url):
    db = Db(url, "CREATE TABLE counts (name VARCHAR(80), amount INTEGER)")
    env = StreamExecutionEnvironment.get_execution_environment()
    kind = named(name=Types.STRING(), ammount=Types.INT())
    env.from_collection([("a", 1)], kind).sink_to(db.sink())
    with pytest.raises(ConfigurationError, match="it has no column 'ammount'"):
        env.execute("typo")
    assert db.rows() == []


COLUMNS = {
    "i": "INTEGER", "big": "BIGINT", "f": "DOUBLE PRECISION", "d": "NUMERIC(20, 4)",
    "s": "VARCHAR(80)", "ok": "BOOLEAN",
    "day": "DATE", "at": "TIMESTAMP NULL",
}  # fmt: skip


@pytest.mark.parametrize(
    ("column", "field", "fits"),
    [
        ("i", Types.LONG(), True),
        ("i", Types.STRING(), False),
        ("i", Types.DOUBLE(), False),  # a database rounds it in silence
        ("i", Types.BIG_DEC(), False),
        ("big", Types.BYTE(), True),
        ("f", Types.INT(), True),
        ("f", Types.BIG_DEC(), True),
        ("f", Types.SQL_DATE(), False),
        ("d", Types.LONG(), True),
        ("d", Types.STRING(), False),
        ("s", Types.STRING(), True),
        ("s", Types.PRIMITIVE_ARRAY(Types.BYTE()), False),
        ("ok", Types.BOOLEAN(), True),
        ("ok", Types.DOUBLE(), False),
        ("day", Types.SQL_DATE(), True),
        ("day", Types.SQL_TIMESTAMP(), False),  # its time would be lost
        ("day", Types.INT(), False),
        ("at", Types.SQL_TIMESTAMP(), True),
        ("at", Types.SQL_TIME(), False),
        ("at", Types.STRING(), True),
        ("s", Types.MAP(Types.STRING(), Types.INT()), False),
        ("s", Types.LIST(Types.INT()), False),  # MariaDB would store [1] as 1
        ("s", Types.BASIC_ARRAY(Types.STRING()), False),
        ("at", Types.INSTANT(), False),
        ("i", Types.PICKLED_BYTE_ARRAY(), True),  # only the database can tell
    ],
)
def test_types_are_held_against_the_columns(url, column, field, fits):
    listed = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    sink = Db(url, f"CREATE TABLE counts ({listed})").sink()
    kind = named(**{column: field})
    if fits:
        sink.validate_input(kind)
        return
    with pytest.raises(ConfigurationError, match=rf"the column '{column}' is .*, which does not"):
        sink.validate_input(kind)


def test_lists_and_dicts_go_into_columns_that_are_made_for_them(postgres_url):
    db = Db(postgres_url, "CREATE TABLE contained (i INTEGER[], s JSONB)")
    sink = db.sink(table="contained")
    sink.validate_input(named(i=Types.LIST(Types.INT()), s=Types.MAP(Types.STRING(), Types.INT())))


def test_a_generated_column_is_refused_at_submit(url):
    db = Db(
        url, "CREATE TABLE counts (i INTEGER, twice INTEGER GENERATED ALWAYS AS (i * 2) STORED)"
    )
    with pytest.raises(ConfigurationError, match="the column 'twice' is generated"):
        db.sink().validate_input(named(i=Types.INT(), twice=Types.INT()))
    db.sink().validate_input(named(i=Types.INT()))


def test_set_columns_are_fields_by_name_or_by_place(url):
    db = Db(url)
    by_name = db.sink(set_columns=["n"])
    by_name.validate_input(named(other=Types.STRING(), n=Types.INT()))
    with pytest.raises(ConfigurationError, match="the column 'n' is INTEGER"):
        by_name.validate_input(named(other=Types.INT(), n=Types.STRING()))
    by_place = db.sink(set_columns=["n", "name"])
    by_place.validate_input(Types.ROW([Types.INT(), Types.STRING()]))
    with pytest.raises(ConfigurationError, match="2 columns are set, but rows have 1 fields"):
        by_place.validate_input(Types.ROW([Types.INT()]))
    by_place.validate_input(None)


@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE counts (name VARCHAR(80), n INTEGER)",
        "CREATE TABLE counts (name VARCHAR(80), n INTEGER, PRIMARY KEY (name, n))",
        "CREATE TABLE counts (name VARCHAR(80), n INTEGER UNIQUE)",
    ],
)
def test_key_columns_without_a_unique_index_of_just_these_are_refused(url, table):
    with pytest.raises(ConfigurationError, match="neither a primary key nor a unique index"):
        Db(url, table).sink(set_key_columns=["name"])


@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE counts (name VARCHAR(80) PRIMARY KEY, n INTEGER)",
        "CREATE TABLE counts (name VARCHAR(80) UNIQUE, n INTEGER)",
    ],
)
def test_a_primary_key_and_a_unique_constraint_are_keys(url, table):
    Db(url, table).sink(set_key_columns=["name"])


def test_a_unique_index_is_a_key_in_any_order(url):
    db = Db(url)
    db.run("CREATE UNIQUE INDEX both_columns ON counts (n, name)")
    db.sink(set_key_columns=["name", "n"])


def test_an_index_of_a_part_is_no_key(standard_url, mariadb_url):
    """Neither one of some rows, nor one of the first letters."""
    db = Db(standard_url)
    db.run("CREATE UNIQUE INDEX some_rows ON counts (name) WHERE n > 0")
    with pytest.raises(ConfigurationError, match="neither a primary key nor a unique index"):
        db.sink(set_key_columns=["name"])
    engine = sa.create_engine(mariadb_url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS prefixed"))
        connection.execute(
            sa.text("CREATE TABLE prefixed (name VARCHAR(80), UNIQUE INDEX part (name(3)))")
        )
    table = sa.Table("prefixed", sa.MetaData(), autoload_with=engine)
    assert not is_unique(sa.inspect(engine), table, ["name"])
