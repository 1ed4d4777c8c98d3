"""SqlSource on SQLite and on real PostgreSQL and MariaDB servers: every row once, whatever begins again."""

import datetime as dt
from decimal import Decimal

import pytest
import sqlalchemy as sa

from penstock.common import Row, Types, WatermarkStrategy
from penstock.connectors.sql_source import Range, SqlSource
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ConfigurationError, JobExecutionError, RefusedForGood
from penstock.engine.runtime.codecs.by_type import codec_of
from penstock.testing import CollectingSink, MiniCluster, check_source
from penstock.testing.conformance.source_run import SourceRun
from tests.tools.connectors.played_by_hand import FakeEnumeratorContext
from tests.tools.connectors.sql_tables import Db
from tests.tools.programs.checkpoint_programs import (
    Watcher,
    minicluster_environment,
    restarting_environment,
)

ORDER = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])


def orders(url, count=20):
    db = Db(url, "CREATE TABLE orders (id INTEGER PRIMARY KEY, name VARCHAR(40), paid INTEGER)")
    with db.engine.begin() as connection:
        for number in range(count):
            values = {"id": number, "name": f"n{number}", "paid": number % 2}
            connection.execute(sa.text("INSERT INTO orders VALUES (:id, :name, :paid)"), values)
    return db


def builder(url):
    return SqlSource.builder().set_url(url).set_row_type(ORDER)


def read(source, parallelism=2):
    source.validate()
    run = SourceRun(source, parallelism)
    run.read()
    run.close()
    return run.records


def splits_of(source):
    return source.create_enumerator(FakeEnumeratorContext()).snapshot_state()


def test_every_row_comes_once_with_the_columns_of_the_type(url):
    orders(url)
    source = builder(url).set_table("orders").set_partition_column("id", 3).build()
    rows = read(source)
    expected = [Row(id=number, name=f"n{number}") for number in range(20)]
    assert sorted(rows, key=lambda row: row["id"]) == expected
    # 0 to 19 in three ranges of equal width, open at both ends
    assert splits_of(source) == [Range(None, 6), Range(6, 12), Range(12, None)]


def test_a_job_reads_a_table(url):
    orders(url)
    env = restarting_environment(Watcher())
    source = builder(url).set_table("orders").set_partition_column("id").build()
    results = CollectingSink()
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "orders")
    rows.map(lambda row: row["id"], Types.LONG()).sink_to(results)
    env.execute("orders")
    assert sorted(results.values) == list(range(20))


def test_it_is_exactly_once(url):
    orders(url, 12)

    def make():
        made = builder(url).set_table("orders").set_partition_column("id", 3).set_fetch_size(2)
        return made.build()

    rows = [Row(id=number, name=f"n{number}") for number in range(12)]
    report = check_source(make, rows, parallelisms=(2,), most_points=2)
    report.require(DeliveryGuarantee.EXACTLY_ONCE)


def test_a_query_is_read_like_a_table(url):
    orders(url)
    query = "SELECT id, name, ':x' AS odd FROM orders WHERE paid = 1;"
    source = builder(url).set_query(query).set_partition_column("id", 4).build()
    assert sorted(row["id"] for row in read(source)) == list(range(1, 20, 2))


@pytest.mark.parametrize("end", [" -- all; of them", "; -- done", " /* x; */ ;\n", " ;"])
def test_a_query_may_end_in_a_comment_or_a_semicolon(url, end):
    orders(url)
    source = builder(url).set_query(f"SELECT id, name FROM orders WHERE paid = 1{end}").build()
    assert [row["id"] for row in read(source)] == list(range(1, 20, 2))


def test_a_query_gives_times_days_and_truth_values_on_each_database(url):
    db = Db(url, "CREATE TABLE orders (at TIMESTAMP NULL, day DATE, hour TIME, is_paid BOOLEAN)")
    table = sa.Table("orders", sa.MetaData(), autoload_with=db.engine)
    values = dt.datetime.fromisoformat("2024-05-06T07:08:09"), dt.date(2024, 5, 6), dt.time(7), True
    names = ["at", "day", "hour", "is_paid"]
    with db.engine.begin() as connection:
        connection.execute(table.insert(), [dict(zip(names, values, strict=True))])
    kinds = [Types.SQL_TIMESTAMP(), Types.SQL_DATE(), Types.SQL_TIME(), Types.BOOLEAN()]
    made = SqlSource.builder().set_url(url).set_row_type(Types.ROW_NAMED(names, kinds))
    made.set_query("SELECT * FROM orders").set_partition_column("at", 2)
    (row,) = codec_of(made.settings.row_type).enforce(read(made.build()))
    assert row == Row(**dict(zip(names, values, strict=True)))
    assert type(row["is_paid"]) is bool


@pytest.mark.filterwarnings("ignore:Did not recognize type .point")
def test_columns_that_have_no_order_are_ordered_as_texts(postgres_url):
    db = Db(postgres_url, "DROP TABLE IF EXISTS papers")
    db.run("CREATE TABLE papers (body JSON, extra JSONB, at POINT)")
    db.run("INSERT INTO papers VALUES ('{\"b\": 2}', '[1]', '(1,2)'), ('{\"a\": 1}', NULL, NULL)")
    row_type = Types.ROW_NAMED(["body", "at"], [Types.PICKLED_BYTE_ARRAY(), Types.STRING()])
    made = SqlSource.builder().set_url(postgres_url).set_row_type(row_type)
    assert read(made.set_table("papers").build()) == [
        Row(body={"a": 1}, at=None),
        Row(body={"b": 2}, at="(1,2)"),
    ]
    made = SqlSource.builder().set_url(postgres_url).set_row_type(row_type)
    with pytest.raises(ConfigurationError, match=r"name columns that make rows unique.*order="):
        made.set_query("SELECT body, at FROM papers").build().validate()
    made.set_partition_column("id", 2, order=["id"])
    query = "SELECT 1 AS id, body, at FROM papers"
    assert len(read(made.set_query(query).build())) == 2
    db.run("DROP TABLE papers")


def test_a_number_that_is_none_lies_in_no_range(postgres_url):
    db = Db(postgres_url, "DROP TABLE IF EXISTS sizes")
    db.run("CREATE TABLE sizes (n NUMERIC)")
    db.run("INSERT INTO sizes VALUES (1), ('NaN'), (9), (NULL)")
    made = SqlSource.builder().set_url(postgres_url).set_table("sizes")
    made.set_row_type(Types.ROW_NAMED(["n"], [Types.BIG_DEC()]))
    source = made.set_partition_column("n", 3).build()
    assert splits_of(source) == [Range(), Range(is_null=True)]
    assert [str(row["n"]) for row in read(source, parallelism=1)] == ["1", "9", "NaN", "None"]
    db.run("DROP TABLE sizes")


def test_a_value_of_another_type_is_told_with_its_column(url):
    orders(url, 1)
    env = minicluster_environment(MiniCluster(parallelism=1), {})
    row_type = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.INT()])
    made = SqlSource.builder().set_url(url).set_table("orders").set_row_type(row_type).build()
    stream = env.from_source(made, WatermarkStrategy.no_watermarks(), "orders")
    stream.sink_to(CollectingSink())
    with pytest.raises(JobExecutionError, match="field 'name': a value of type str does not fit"):
        env.execute("orders")


def test_without_a_column_one_split_has_all_in_order(url):
    orders(url)
    source = builder(url).set_table("orders").build()
    assert splits_of(source) == [Range()]
    assert [row["id"] for row in read(source)] == list(range(20))


def test_rows_without_a_value_have_a_split_of_their_own(url):
    db = Db(url, "CREATE TABLE orders (id INTEGER, name VARCHAR(40))")
    db.run("INSERT INTO orders VALUES (NULL, 'a'), (1, 'b'), (NULL, 'c'), (2, 'd')")
    source = builder(url).set_table("orders").set_partition_column("id", 2).build()
    assert Range(is_null=True) in splits_of(source)
    assert sorted(row["name"] for row in read(source)) == ["a", "b", "c", "d"]


def test_an_empty_table_has_no_split(url):
    orders(url, 0)
    source = builder(url).set_table("orders").set_partition_column("id").build()
    assert splits_of(source) == []
    assert read(source) == []


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("DATE", [dt.date(2024, 1, 1) + dt.timedelta(days=n) for n in range(9)]),
        ("TIMESTAMP NULL", [dt.datetime.fromisoformat(f"2024-01-01T0{n}:00:00") for n in range(9)]),
        ("NUMERIC(9, 2)", [Decimal(n) / 4 for n in range(9)]),
        ("DOUBLE PRECISION", [n / 8 for n in range(9)]),
    ],
)
def test_a_column_may_have_dates_times_and_any_numbers(url, kind, values):
    db = Db(url, f"CREATE TABLE orders (name VARCHAR(40), at {kind})")
    table = sa.Table("orders", sa.MetaData(), autoload_with=db.engine)
    with db.engine.begin() as connection:
        connection.execute(table.insert(), [{"name": "x", "at": one} for one in values])
    row_type = Types.ROW_NAMED(["at"], [Types.PICKLED_BYTE_ARRAY()])
    made = SqlSource.builder().set_url(url).set_row_type(row_type).set_table("orders")
    source = made.set_partition_column("at", 3).build()
    assert len(splits_of(source)) == 3
    assert sorted(row["at"] for row in read(source)) == values


def test_what_is_wrong_is_told_at_submit(url):
    orders(url, 1)
    with pytest.raises(ConfigurationError, match=r"has no columns \['paidd'\]; it has \['id'"):
        builder(url).set_table("orders").set_partition_column("paidd").build().validate()
    with pytest.raises(ConfigurationError, match=r"cannot read the table 'absent'"):
        builder(url).set_table("absent").build().validate()
    with pytest.raises(ConfigurationError, match=r"cannot read the query 'SELECT nonsense'"):
        builder(url).set_query("SELECT nonsense").build().validate()


def test_a_column_of_texts_is_refused(url):
    orders(url, 2)
    source = builder(url).set_table("orders").set_partition_column("name").build()
    with pytest.raises(RefusedForGood, match="partition column has 'n0' of type str"):
        splits_of(source)


def test_the_builder_refuses_what_cannot_work():
    with pytest.raises(ConfigurationError, match="set_url is missing"):
        SqlSource.builder().build()
    with pytest.raises(ConfigurationError, match="either a table or a query"):
        builder("sqlite:////x").build()
    with pytest.raises(ConfigurationError, match="either a table or a query"):
        builder("sqlite:////x").set_table("a").set_query("SELECT 1").build()
    with pytest.raises(ConfigurationError, match="set_row_type is missing"):
        SqlSource.builder().set_url("sqlite:////x").set_table("a").build()
    with pytest.raises(
        ConfigurationError, match="set_partition_column: splits: expected 1 or more"
    ):
        builder("sqlite:////x").set_partition_column("a", 0)
    with pytest.raises(ConfigurationError, match="set_fetch_size"):
        builder("sqlite:////x").set_fetch_size(0)
    with pytest.raises(TypeError, match="set_row_type takes"):
        SqlSource.builder().set_row_type(Types.INT())
