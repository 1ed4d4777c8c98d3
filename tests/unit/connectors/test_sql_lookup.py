"""SqlLookup on SQLite and on real PostgreSQL and MariaDB servers: a join by key, async, cached, one query for many keys."""

import contextlib
import datetime as dt
import logging
import uuid
from decimal import Decimal

import pytest
import sqlalchemy as sa

from penstock.common import Row, RowKind, Types
from penstock.common.time import Duration
from penstock.connectors.sql_lookup import LookupCache, SqlLookup
from penstock.datastream import AsyncDataStream, AsyncFunction
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.errors import (
    ConfigurationError,
    ExternalError,
    GraphError,
    JobExecutionError,
)
from tests.tools.connectors.lookups import Lookups
from tests.tools.connectors.sql_tables import Db
from tests.tools.postgres import running_postgres
from tests.tools.programs.checkpoint_programs import Watcher, restarting_environment
from tests.tools.programs.environments import collected, minicluster_environment
from tests.tools.waiting import wait_until
from tests.unit.connectors.conftest import empty_database

ORDER = Types.ROW_NAMED(["order", "user"], [Types.STRING(), Types.LONG()])
USERS = "CREATE TABLE users (id INTEGER PRIMARY KEY, name VARCHAR(40), age SMALLINT)"


def users(url):
    db = Db(url, USERS)
    db.run("INSERT INTO users VALUES (1, 'ada', 36), (2, 'bob', NULL), (3, 'eve', 70)")
    return db


def builder(url, table="users", keys=("id",)):
    return SqlLookup.builder().set_url(url).set_table(table).set_key_columns(list(keys))


@contextlib.contextmanager
def queries_counted():
    seen = []

    def note(_connection, _cursor, statement, *_):
        if "FROM users" in statement:
            seen.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


def orders(env, *pairs):
    return env.from_collection([Row(order=order, user=user) for order, user in pairs], ORDER)


@pytest.fixture
def file_url(tmp_path):
    """Where the database does not matter."""
    return f"sqlite:///{tmp_path}/test.db"


@pytest.fixture
def env():
    return minicluster_environment(MiniCluster(parallelism=2))


ORDERS = (("o1", 1), ("o2", 2), ("o3", 9), ("o4", 1), ("o5", None))


def test_a_job_joins_each_record_with_its_row(url, env):
    users(url)
    joined = AsyncDataStream.lookup_join(orders(env, *ORDERS), builder(url).build(), on="user")
    assert joined.get_type() == Types.ROW_NAMED(
        ["order", "user", "name", "age"],
        [
            Types.STRING(), Types.LONG(), Types.STRING(),
            Types.LONG() if url.startswith("sqlite") else Types.SHORT(),
        ],
    )  # fmt: skip
    assert sorted(collected(joined), key=lambda row: row["order"]) == [
        Row(order="o1", user=1, name="ada", age=36),
        Row(order="o2", user=2, name="bob", age=None),
        Row(order="o4", user=1, name="ada", age=36),
    ]


def test_a_left_join_keeps_records_without_a_row(file_url, env):
    users(file_url)
    env.set_parallelism(1)
    joined = AsyncDataStream.lookup_join(
        orders(env, *ORDERS), builder(file_url).set_columns(["name"]).build(), ["user"], "left",
        is_ordered=True,
    )  # fmt: skip
    assert [(row["order"], row["name"]) for row in collected(joined)] == [
        ("o1", "ada"), ("o2", "bob"), ("o3", None), ("o4", "ada"), ("o5", None),
    ]  # fmt: skip


def test_a_key_has_all_of_its_rows_and_may_have_several_columns(url):
    db = Db(url, "CREATE TABLE prices (shop VARCHAR(9), item INTEGER, price NUMERIC(9, 2))")
    db.run("INSERT INTO prices VALUES ('a', 1, 1.5), ('a', 1, 2.5), ('a', 2, 3), ('b', 1, 4)")
    lookup = builder(url, "prices", ("shop", "item")).build()
    with Lookups(lookup.function(["s", "i"])) as look:
        records = [Row(s="a", i=1), Row(s="b", i=1), Row(s="b", i=2), Row(s=None, i=1)]
        found = [sorted(row["price"] for _, row in one) for one in look(*records)]
    assert found == [[Decimal("1.5"), Decimal("2.5")], [Decimal(4)], [], []]
    assert lookup.row_type == Types.ROW_NAMED(["price"], [Types.BIG_DEC()])


def test_the_function_is_one_for_any_async_operator(file_url, env):
    users(file_url)
    function = builder(file_url).build().function(lambda pair: pair[1], "left")
    assert isinstance(function, AsyncFunction)
    pairs = env.from_collection([("x", 1), ("y", 7)])
    joined = AsyncDataStream.ordered_wait(pairs, function, Duration.of_seconds(60), 10)
    named = joined.map(lambda one: (one[0][0], one[1] and one[1]["name"]))
    assert sorted(collected(named)) == [("x", "ada"), ("y", None)]


def test_a_batch_is_one_query_and_the_cache_asks_for_what_it_lacks(url):
    users(url)
    cache = LookupCache(max_rows=10)
    function = builder(url).set_cache(cache).build().function(lambda n: n)
    with Lookups(function) as look, queries_counted() as queries:
        assert [len(one) for one in look(1, 2, 9, 1)] == [1, 1, 0, 1]
        assert len(queries) == 1
        assert [len(one) for one in look(9, 2, 3)] == [0, 1, 1]
        assert len(queries) == 2
        assert look(1, 2, 3, 9)
        assert len(queries) == 2
        figures = look.figures()
    assert figures.pop("latestLoadTime") >= 0
    assert figures == {
        "hitCount": 2 + 4, "missCount": 4 + 1, "loadCount": 2, "numLoadFailures": 0,
        "numCachedRecords": 4,
    }  # fmt: skip


def test_without_a_cache_each_batch_sees_the_table_as_it_is(url):
    db = users(url)
    with Lookups(builder(url).build().function(lambda n: n)) as look:
        assert look(3)[0][0][1]["name"] == "eve"
        db.run("UPDATE users SET name = 'eva' WHERE id = 3")
        assert look(3)[0][0][1]["name"] == "eva"


def test_many_keys_are_several_queries_of_bounded_size(url):
    users(url)
    function = builder(url).set_max_keys(10).set_connections(2).build().function(lambda n: n)
    with Lookups(function) as look, queries_counted() as queries:
        found = look(*range(95))
    assert [number for number, one in enumerate(found) if one] == [1, 2, 3]
    assert len(queries) == 10


def test_a_key_that_the_column_cannot_hold_has_no_row_and_disturbs_no_other(url):
    users(url)
    numbers = [1, 1 << 40, -(1 << 70), 2.5, float("nan"), float("inf"), Decimal(2), Decimal("1.5")]
    with Lookups(builder(url).build().function(lambda n: n)) as look:
        assert [len(one) for one in look(*numbers)] == [1, 0, 0, 0, 0, 0, 1, 0]
    names = ["ada", "a\0da", "\ud800", "eve"]
    with Lookups(builder(url, keys=["name"]).build().function(lambda n: n)) as look:
        assert [len(one) for one in look(*names)] == [1, 0, 0, 1]


@pytest.mark.parametrize(
    ("kind", "field", "values"),
    [
        ("DATE", Types.SQL_DATE(), [dt.date(2024, 1, n) for n in (1, 2, 3)]),
        (
            "TIMESTAMP NULL",
            Types.SQL_TIMESTAMP(),
            [dt.datetime.fromisoformat(f"2024-01-01T0{n}:00:00") for n in (1, 2, 3)],
        ),
        ("NUMERIC(9, 2)", Types.BIG_DEC(), [Decimal(n) / 4 for n in (1, 2, 3)]),
        ("DOUBLE PRECISION", Types.DOUBLE(), [n / 8 for n in (1, 2, 3)]),
        ("BIGINT", Types.INT(), [1, 2, 3]),
        ("CHAR(5)", Types.STRING(), ["a", "bc", "defgh"]),
        ("BOOLEAN", Types.BOOLEAN(), [True, False]),
    ],
)
def test_keys_may_be_dates_times_texts_and_any_numbers(url, kind, field, values):
    db = Db(url, f"CREATE TABLE things (k {kind}, n INTEGER)")
    table = sa.Table("things", sa.MetaData(), autoload_with=db.engine)
    with db.engine.begin() as connection:
        rows = [{"k": value, "n": number} for number, value in enumerate(values)]
        connection.execute(table.insert(), rows)
    key_type = Types.ROW_NAMED(["key"], [field])
    function, _ = builder(url, "things", ["k"]).build().joined(key_type, "key", "inner")
    with Lookups(function) as look:
        found = [row for rows in look(*(Row(key=one) for one in values)) for row in rows]
    assert sorted((row["n"], row["key"]) for row in found) == list(enumerate(values))


@pytest.mark.server
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_keys_may_be_members_of_an_enumeration(request, kind, tmp_path):
    url = empty_database(request, kind, tmp_path)
    if kind == "postgresql":
        db = Db(url, "CREATE TYPE mood AS ENUM ('sad', 'happy')")
        db.run("CREATE TABLE moods (mood mood, n INTEGER)")
    else:
        db = Db(url, "CREATE TABLE moods (mood ENUM('sad', 'happy'), n INTEGER)")
    db.run("INSERT INTO moods VALUES ('happy', 1), ('sad', 2)")
    env = minicluster_environment(MiniCluster(parallelism=1), {})
    rows = env.from_collection(
        [Row(text="happy"), Row(text="none of them"), Row(text="sad")],
        Types.ROW_NAMED(["text"], [Types.STRING()]),
    )
    table = SqlLookup.builder().set_url(url).set_table("moods").set_key_columns(["mood"]).build()
    found = AsyncDataStream.lookup_join(rows, table, on="text", how="left", is_ordered=True)
    assert [(row["text"], row["n"]) for row in found.execute_and_collect()] == [
        ("happy", 1),
        ("none of them", None),
        ("sad", 2),
    ]


def test_rows_that_only_the_database_calls_equal_are_left_out_and_told(mariadb_db, caplog):
    mariadb_db.run("CREATE TABLE names (name VARCHAR(20), n INTEGER)")
    mariadb_db.run("INSERT INTO names VALUES ('Ada', 1), ('ada', 2)")
    function = builder(mariadb_db.url, "names", ["name"]).build().function(lambda n: n)
    with caplog.at_level(logging.WARNING), Lookups(function) as look:
        assert [[row["n"] for _, row in one] for one in look("ada", "ADA")] == [[2], []]
    assert "the database finds rows with the key ('Ada',)" in caplog.text


@pytest.fixture
def mariadb_db(mariadb_url):
    db = Db(mariadb_url, "DROP TABLE IF EXISTS names")
    yield db
    db.run("DROP TABLE IF EXISTS names")


def test_what_is_wrong_is_told_before_the_job_runs(url, env):
    users(url)
    stream = orders(env, ("o1", 1))

    def join(lookup, **settings):
        return AsyncDataStream.lookup_join(stream, lookup.build(), **settings)

    with pytest.raises(ConfigurationError, match="there is no table or view 'absent' in"):
        join(builder(url, "absent"), on="user")
    with pytest.raises(ConfigurationError, match=r"has no columns \['idd'\]; it has \['id', 'na"):
        join(builder(url, keys=["idd"]), on="user")
    with pytest.raises(ConfigurationError, match=r"has no columns \['nam'\]"):
        join(builder(url).set_columns(["nam"]), on="user")
    with pytest.raises(ConfigurationError, match=r"'order' of type String never equals .* 'id'"):
        join(builder(url), on="order")
    with pytest.raises(ConfigurationError, match=r"'user' of type Long never equals .* 'name'"):
        join(builder(url, keys=["name"]), on="user")
    with pytest.raises(GraphError, match=r"has no fields \['id'\] to look up by; it has \['order'"):
        join(builder(url))
    with pytest.raises(ConfigurationError, match="1 fields .* are looked up by 2 key columns"):
        join(builder(url, keys=["id", "name"]), on="user")
    with pytest.raises(ConfigurationError, match='is "inner" or "left", got \'outer\''):
        join(builder(url), on="user", how="outer")
    with pytest.raises(GraphError, match=r"both the stream and the table have \['name'\]"):
        named = stream.map(
            lambda row: row, Types.ROW_NAMED(["name", "user"], ORDER.get_field_types())
        )
        AsyncDataStream.lookup_join(named, builder(url).build(), "user")
    with pytest.raises(GraphError, match="takes a stream of named Rows, whose type is declared"):
        AsyncDataStream.lookup_join(stream.map(lambda row: row), builder(url).build(), "user")
    with pytest.raises(TypeError, match="must be a DataStream"):
        AsyncDataStream.lookup_join([], builder(url).build())


def test_a_database_that_is_not_there_is_told_before_the_job_runs(tmp_path):
    lookup = builder(f"sqlite:///{tmp_path}/no/such/folder.db").build()
    with pytest.raises(
        ConfigurationError, match="cannot read the table 'users' in .*unable to open"
    ):
        lookup.function("user")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda made: made.set_key_columns("id"), "set_key_columns: expected a list of names"),
        (lambda made: made.set_columns(["a", "a"]), "set_columns: a name is there twice"),
        (lambda made: made.set_cache(100), "set_cache: expected a LookupCache, got 100"),
        (lambda made: made.set_max_retries(-1), "set_max_retries: expected 0 or more, got -1"),
        (lambda made: made.set_connections(0), "set_connections: expected 1 or more, got 0"),
        (lambda made: made.set_max_keys(True), "set_max_keys: expected 1 or more, got True"),
        (lambda made: made.build(), "set_url is missing before build"),
        (lambda made: made.set_url("sqlite:////x").build(), "set_table is missing"),
        (lambda made: made.set_url("jdbc:postgresql://h/d?foo=1"), "parameter 'foo'"),
    ],
)
def test_the_builder_refuses_what_cannot_work(call, text):
    with pytest.raises(ConfigurationError, match=text):
        call(SqlLookup.builder())


def test_the_password_is_not_shown(mariadb_db):
    mariadb_db.run("CREATE TABLE names (name VARCHAR(20), n INTEGER)")
    lookup = builder(mariadb_db.url, "names", ["name"]).build()
    function = lookup.function("name")
    mariadb_db.run("DROP TABLE names")
    with Lookups(function) as look, pytest.raises(ExternalError) as caught:
        look(Row(name="a"))
    assert "secret" not in f"{lookup!r} {lookup.settings!r} {caught.value}"


def test_a_key_with_the_wrong_number_of_values_is_told(file_url):
    users(file_url)
    function = builder(file_url).build().function(lambda n: (n, n))
    text = r"which has 2 values for the key columns \['id'\]"
    with Lookups(function) as look, pytest.raises(ValueError, match=text):
        look(1)


def test_rows_keep_their_kind(file_url, env):
    users(file_url)
    rows = [Row.of_kind(RowKind.DELETE, "o1", 1)]
    joined = AsyncDataStream.lookup_join(
        env.from_collection(rows, ORDER), builder(file_url).build(), "user"
    )
    (row,) = collected(joined)
    assert (row.get_row_kind(), row["name"]) == (RowKind.DELETE, "ada")


def test_other_types_come_as_the_driver_gives_them(postgres_url, env):
    number = uuid.UUID(int=7)
    db = Db(postgres_url, "DROP TABLE IF EXISTS things")
    db.run("CREATE TABLE things (k UUID, j JSONB, at TIMESTAMPTZ, b BYTEA)")
    db.run(f"INSERT INTO things VALUES ('{number}', '[1]', '2024-01-01T01:00+01', '\\x0102')")
    stream = env.from_collection(
        [Row(key=number)], Types.ROW_NAMED(["key"], [Types.PICKLED_BYTE_ARRAY()])
    )
    lookup = builder(postgres_url, "things", ["k"]).build()
    (row,) = collected(AsyncDataStream.lookup_join(stream, lookup, "key"))
    assert row.as_dict() == {
        "key": number, "j": [1], "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "b": b"\x01\x02",
    }  # fmt: skip
    naive = env.from_collection(
        [Row(key=dt.datetime.fromisoformat("2024-01-01"))],
        Types.ROW_NAMED(["key"], [Types.SQL_TIMESTAMP()]),
    )
    with pytest.raises(ConfigurationError, match="never equals the column 'at'"):
        AsyncDataStream.lookup_join(naive, builder(postgres_url, "things", ["at"]).build(), "key")
    db.run("DROP TABLE things")


@pytest.mark.server
def test_a_server_that_is_killed_and_comes_back_costs_tries_and_no_record():
    with running_postgres("synchronous_commit=on") as server:
        users(server.url)
        function = builder(server.url).build().function(lambda n: n)
        with Lookups(function) as look:
            assert len(look(1)[0]) == 1
            server.kill()
            server.start()
            # The pool still has the connection that is broken.
            assert [len(one) for one in look(1, 2, 9)] == [1, 1, 0]
            assert look.figures()["numLoadFailures"] == 1


@pytest.mark.server
def test_a_server_that_stays_away_fails_the_task_and_the_job_goes_on_when_it_is_back(tmp_path):
    with running_postgres("synchronous_commit=on") as server:
        users(server.url)
        watcher = Watcher()
        settings = {
            "restart_strategy__fixed_delay__attempts": "1000",
            # One subtask may find a server that another one did not: rows wait for a checkpoint.
            "execution__checkpointing__interval": "50 ms",
            "execution__checkpointing__dir": str(tmp_path),
        }
        env = restarting_environment(watcher, **settings)
        stream = orders(env, *((f"o{n}", n % 4) for n in range(400)))
        lookup = builder(server.url).set_max_retries(0).build()
        joined = AsyncDataStream.lookup_join(stream, lookup, "user", "left", capacity=7)
        server.kill()
        with joined.execute_and_collect("lookup") as results:
            wait_until(lambda: watcher.restored, "the job does not begin again")
            server.start()
            found = sorted((int(row["order"][1:]), row["name"]) for row in results)
    names = {1: "ada", 2: "bob", 3: "eve"}
    assert found == [(n, names.get(n % 4)) for n in range(400)]


def test_an_error_that_no_try_can_change_ends_the_job(url, env):
    db = users(url)
    joined = AsyncDataStream.lookup_join(orders(env, *ORDERS), builder(url).build(), "user")
    db.run("DROP TABLE users")
    db.run("CREATE TABLE users (other INTEGER)")
    with pytest.raises(
        JobExecutionError, match=r"SqlLookup, subtask .: .* no columns \['id'\] any"
    ):
        collected(joined)
