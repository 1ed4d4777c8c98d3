"""TLS, certificates and passwords of a real PostgreSQL server, for all that connects to it: what is told if they do not fit."""

import psycopg
import pytest

from penstock.common import Row, Types
from penstock.connectors.cdc import PostgresSource
from penstock.connectors.cdc.postgres.catalog import connect
from penstock.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from penstock.connectors.sql_lookup import SqlLookup
from penstock.connectors.sql_sink import SqlSink
from penstock.connectors.sql_source import SqlSource
from penstock.engine.model.errors import ConfigurationError, RefusedForGood
from penstock.testing.conformance.source_run import SourceRun
from tests.tools.connectors.changelogs import streaming, told
from tests.tools.connectors.lookups import Lookups
from tests.tools.connectors.played_by_hand import FakeEnumeratorContext
from tests.tools.connectors.sql_tables import PAIRS, context, put
from tests.tools.secured_postgres import secured_postgres
from tests.tools.tls_cases import made_in

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("postgres-tls")
    with secured_postgres(made_in(folder), folder, "wal_level=logical") as server:
        yield server


# ruff: ignore[pytest-fixture-autouse] - each test begins with the same rows
@pytest.fixture(autouse=True)
def counts(secured):
    """A table of two rows, whose changes can be read."""
    with psycopg.connect(
        host=secured.folder, port=secured.port, user="penstock", dbname="postgres", autocommit=True
    ) as connection:
        for statement in (
            "DROP SCHEMA public CASCADE",
            "CREATE SCHEMA public",
            "GRANT ALL ON SCHEMA public TO keeper, job",
            "CREATE TABLE counts (name VARCHAR(80) PRIMARY KEY, n INTEGER)",
            "ALTER TABLE counts REPLICA IDENTITY FULL",
            "ALTER TABLE counts OWNER TO keeper",
            "INSERT INTO counts VALUES ('a', 1), ('b', 2)",
        ):
            connection.execute(statement)
        yield connection
        while connection.execute("SELECT FROM pg_replication_slots WHERE active").fetchall():
            pass
        connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
        connection.execute("DROP PUBLICATION IF EXISTS penstock")


def source(url):
    return SqlSource.builder().set_url(url).set_row_type(PAIRS).set_table("counts").build()


def sink(url):
    return SqlSink.builder().set_url(url).set_table("counts").build()


def lookup(url):
    made = SqlLookup.builder().set_url(url).set_table("counts").set_key_columns(["name"])
    return made.set_max_retries(0).build()


def changes(secured, user="job", host="127.0.0.1", password="", **changed):
    return (
        PostgresSource
        .builder()
        .hostname(host)
        .port(secured.port)
        .database("postgres")
        .username(user)
        .password(password)
        .table_list("public.counts")
        .connection_parameters(secured.parameters(**changed))
        .build()
    )


def write(made, *pairs):
    made.validate()
    writer = made.create_writer(context())
    put(writer, *pairs)
    made.create_committer().commit(writer.prepare_checkpoint(1))
    writer.close()


def rows(made):
    made.validate()
    run = SourceRun(made, 1)
    run.read()
    run.close()
    return run.records


LOGINS = {
    "a certificate": {"user": "job"},
    "a password": {"user": "keeper:it%27s%20secret", "sslcert": None, "sslkey": None},
}


@pytest.mark.parametrize("login", LOGINS)
def test_with_a_certificate_or_a_password_all_connectors_of_sql_connect(secured, login):
    url = secured.url(**LOGINS[login])
    write(sink(url), ("c", 3))
    found = sorted(rows(source(url)), key=lambda row: row["name"])
    assert found == [Row(name=name, n=n) for name, n in (("a", 1), ("b", 2), ("c", 3))]
    with Lookups(lookup(url).function(lambda record: record)) as looked_up:
        assert looked_up("c") == [[("c", Row(n=3))]]


@pytest.mark.parametrize(
    ("user", "more"),
    [("job", {}), ("keeper", {"password": "it's secret", "sslcert": None, "sslkey": None})],
)
def test_changes_are_read_with_a_certificate_or_a_password(secured, counts, user, more):
    counts.execute("CREATE PUBLICATION penstock FOR TABLE counts")
    made = changes(secured, user, **more)
    made.validate()
    with streaming(made, 2) as run:
        counts.execute("UPDATE counts SET n = 20 WHERE name = 'b'")
        run.read(records=4)
    assert told(run.records)[2:] == [("-U", "b", 2), ("+U", "b", 20)]


CASES = {
    "unknown authority": (
        lambda tls: {"sslrootcert": tls.other_ca},
        "certificate verify failed. Name the authority .*sslrootcert",
    ),
    "no authority": (
        lambda _: {"sslrootcert": "/no/such.pem"},
        'root certificate file "/no/such.pem" does not exist',
    ),
    "another host": (
        lambda _: {"host": "localhost"},
        'does not match host name "localhost". Name the host as its certificate does',
    ),
    "no certificate": (
        lambda _: {"sslcert": None, "sslkey": None},
        "requires a valid client certificate. Name it with sslcert",
    ),
    "another user's certificate": (
        lambda _: {"user": "keeper", "sslcert": None, "sslkey": None},
        "no password supplied. Give the user's password",
    ),
    "a key that all may read": (
        lambda tls: {"sslkey": tls.client[1]},
        "has group or world access",
    ),
    "no TLS": (lambda _: {"sslmode": "disable"}, "no encryption. Have the .*sslmode=require"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_does_not_fit_is_told_in_one_line_and_ends_the_job(secured, case):
    change, text = CASES[case]
    changed = change(secured.tls)
    url = secured.url(**changed)
    refused_at_submit(source(url), text)
    refused_at_submit(sink(url), text)
    refused_at_submit(changes(secured, **changed), text)
    with pytest.raises(ConfigurationError, match=text):
        lookup(url).function(lambda record: record)
    ends_the_job(url, text)
    with pytest.raises(RefusedForGood, match=text):
        connect(changes(secured, **changed).settings, "here", replicates=True)


def test_a_wrong_password_is_told_in_one_line_and_ends_the_job(secured):
    text = 'password authentication failed for user "keeper". Correct user and password'
    changed = {"sslcert": None, "sslkey": None}
    url = secured.url("keeper:wrong", **changed)
    for made in (
        source(url),
        sink(url),
        changes(secured, "keeper", password="wrong", **changed),
        JdbcSink.sink(
            "INSERT INTO counts VALUES (?, ?)",
            Types.ROW([Types.STRING(), Types.INT()]),
            JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url).build(),
        ),
    ):
        refused_at_submit(made, text)
    ends_the_job(url, text)
    right = sink(secured.url())
    right.validate()
    writer = right.create_writer(context())
    put(writer, ("c", 3))
    committer = sink(url).create_committer()
    with pytest.raises(RefusedForGood, match=text):
        committer.commit(writer.prepare_checkpoint(1))
    writer.close()


def test_the_password_of_a_key_is_not_shown(secured):
    url = secured.url(sslpassword="of a key", sslrootcert=secured.tls.other_ca)
    with pytest.raises(ConfigurationError, match=r"sslpassword=%2A%2A%2A") as refusal:
        sink(url).validate()
    assert "of+a+key" not in str(refusal.value)


def refused_at_submit(made, text):
    with pytest.raises(ConfigurationError, match=text) as refusal:
        made.validate()
    assert "\n" not in str(refusal.value)
    assert "wrong" not in str(refusal.value), "the password is shown"


def ends_the_job(url, text):
    """As if it had been right at submit."""
    made = SqlSource.builder().set_url(url).set_row_type(PAIRS).set_table("counts")
    with pytest.raises(RefusedForGood, match=text):
        made.set_partition_column("n", 2).build().create_enumerator(FakeEnumeratorContext())
    run = SourceRun(source(url), 1)
    with pytest.raises(RefusedForGood, match=text):
        run.read()
    run.close()
    with pytest.raises(RefusedForGood, match=text):
        sink(url).create_writer(context())
