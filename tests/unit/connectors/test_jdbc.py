"""JdbcSink on SQLite and on a real PostgreSQL server."""

import pickle

import pytest
import sqlalchemy as sa

from penstock.common import Row, Types
from penstock.connectors.jdbc import (
    JdbcConnectionOptions,
    JdbcExecutionOptions,
    JdbcSink,
    url_of,
    with_names,
)
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.runtime.elements import RowBatch
from tests.tools.connectors.sql_tables import PAIRS, Db, context

INSERT = "INSERT INTO counts (name, n) VALUES (?, ?)"


def connection(url, **more):
    builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url)
    for name, value in more.items():
        getattr(builder, name)(value)
    return builder.build()


def sink(url, sql=INSERT, **execution):
    builder = JdbcExecutionOptions.builder()
    for name, value in execution.items():
        getattr(builder, name)(value)
    made = JdbcSink.sink(sql, PAIRS, connection(url), builder.build())
    made.validate()
    return pickle.loads(pickle.dumps(made))


def batch(*values):
    return RowBatch([Row(*value) for value in values])


def test_full_batches_are_written_and_the_rest_before_a_barrier(url):
    db = Db(url)
    writer = sink(url, with_batch_size=2).create_writer(context())
    writer.write(batch(("a", 1), ("b", 2), ("c", 3)), 0)
    assert db.rows() == [("a", 1), ("b", 2)]
    assert list(writer.prepare_commit()) == []
    assert db.rows() == [("a", 1), ("b", 2), ("c", 3)]
    writer.close()


def test_what_was_not_written_when_an_attempt_ends_is_not_written(url):
    db = Db(url)
    writer = sink(url).create_writer(context())
    writer.write(batch(("a", 1)), 0)
    writer.close()
    assert db.rows() == []


def test_a_statement_that_replaces_by_key_makes_repeats_harmless(standard_url):
    db = Db(standard_url, "CREATE TABLE counts (name VARCHAR(80) PRIMARY KEY, n INTEGER)")
    upsert = f"{INSERT} ON CONFLICT (name) DO UPDATE SET n = excluded.n"
    writer = sink(standard_url, upsert).create_writer(context())
    for n in (1, 2):
        writer.write(batch(("a", n), ("b", None)), 0)
        writer.prepare_commit()
    assert db.rows() == [("a", 2), ("b", None)]


def test_quoted_question_marks_and_colons_are_text(standard_url):
    db = Db(standard_url)
    sql = "INSERT INTO counts (name, n) VALUES (':p?' || ?, ?)"
    writer = sink(standard_url, sql).create_writer(context())
    writer.write(batch(("a", 1)), 0)
    writer.prepare_commit()
    assert db.rows() == [(":p?a", 1)]


def test_names_take_the_place_of_question_marks():
    assert with_names("""VALUES (?, '?''?', "a?", ?::int)""") == (
        """VALUES (:p0, '?''?', "a?", :p1\\:\\:int)""",
        2,
    )


def test_a_statement_that_the_database_refuses_names_the_sink_and_where(url):
    Db(url)
    writer = sink(url, "INSERT INTO nowhere VALUES (?, ?)").create_writer(context(subtask=1))
    writer.write(batch(("a", 1)), 0)
    with pytest.raises(ExternalError, match=r"JdbcSink, subtask 1 of 1: cannot write to .*nowhere"):
        writer.prepare_commit()


def test_a_database_that_is_not_there_is_told_at_submit():
    nobody = "jdbc:postgresql://127.0.0.1:1/none"
    made = JdbcSink.sink(
        INSERT, PAIRS, connection(nobody, with_user_name="u", with_password="secret")
    )
    with pytest.raises(ConfigurationError, match="JdbcSink on the driver") as caught:
        made.validate()
    assert "secret" not in str(caught.value)


def test_fields_and_parameters_must_agree():
    with pytest.raises(ConfigurationError, match=r"has 1 parameters \(\?\).*2 fields"):
        JdbcSink.sink("INSERT INTO counts VALUES (?)", PAIRS, connection("sqlite:////x"))
    with pytest.raises(TypeError, match="needs a row type"):
        JdbcSink.sink(INSERT, Types.INT(), connection("sqlite:////x"))


def test_a_record_of_another_width_is_refused(url):
    Db(url)
    writer = sink(url).create_writer(context())
    with pytest.raises(TypeError, match="has 1 fields, but the statement takes 2"):
        writer.write(batch(("a",)), 0)


@pytest.mark.parametrize(
    ("javas", "ours"),
    [
        ("jdbc:postgresql://h:5432/d", "postgresql+psycopg://u:p@h:5432/d"),
        ("jdbc:mysql://h/d?useSSL=false", "mysql+pymysql://u:p@h/d?ssl_disabled=true"),
        ("postgresql+psycopg2://h/d", "postgresql+psycopg2://u:p@h/d"),
    ],
)
def test_javas_urls_are_understood(javas, ours):
    options = connection(
        javas, with_user_name="u", with_password="p", with_driver_name="org.Driver"
    )
    assert url_of(options, "test") == ours


@pytest.mark.parametrize(
    ("javas", "ours"),
    [
        ("jdbc:postgresql://h/d?ssl=false&user=x&password=y", "postgresql+psycopg://x:y@h/d"),
        ("jdbc:postgresql://h/d?ssl=true", "postgresql+psycopg://h/d?sslmode=verify-full"),
        (
            "jdbc:postgresql://h/d?reWriteBatchedInserts=true&ApplicationName=shop",
            "postgresql+psycopg://h/d?application_name=shop",
        ),
        (
            (
                "jdbc:mysql://h:3306/d?serverTimezone=UTC&rewriteBatchedStatements=true"
                "&connectTimeout=1500"
            ),
            "mysql+pymysql://h:3306/d?connect_timeout=2",
        ),
        (
            "jdbc:mariadb://h/d?useUnicode=true&characterEncoding=UTF-8&sslMode=REQUIRED",
            "mariadb+pymysql://h/d?charset=utf8mb4&ssl_check_hostname=false",
        ),
        ("jdbc:postgresql:shop", "postgresql+psycopg://localhost/shop"),
        ("jdbc:postgresql:///shop", "postgresql+psycopg://localhost/shop"),
        (
            "jdbc:postgresql://a:1,b:2/d?targetServerType=primary",
            "postgresql+psycopg:///d?host=a%3A1&host=b%3A2&target_session_attrs=primary",
        ),
        (
            "jdbc:postgresql://h/d?options=-cwork_mem=1MB&currentSchema=other",
            "postgresql+psycopg://h/d?options=-cwork_mem%3D1MB+-csearch_path%3Dother",
        ),
    ],
)
def test_javas_parameters_are_translated_or_left_out(javas, ours):
    """Those of pgJDBC and Connector/J that change nothing for rows that are written are left out."""
    assert url_of(connection(javas), "test") == ours


@pytest.mark.parametrize(
    ("javas", "named"),
    [
        ("jdbc:postgresql://h/d?socketFactory=x", "'socketFactory'"),
        ("jdbc:postgresql://h/d?ssl=perhaps", "'ssl=perhaps'"),
        ("jdbc:mysql://h/d?sslMode=VERIFY_CA", "'sslMode=VERIFY_CA'"),
        ("jdbc:mysql://h/d?useSSL=false&sessionVariables=a=1", "'sessionVariables'"),
        ("jdbc:sqlite:/a.db?cache=shared", "'cache'"),
    ],
)
def test_a_parameter_that_has_no_counterpart_is_refused_by_name(javas, named):
    with pytest.raises(ConfigurationError, match=f"the parameter {named}"):
        url_of(connection(javas), "test")


@pytest.mark.parametrize(
    "javas",
    [
        "jdbc:mysql://h1,h2/d", "jdbc:mysql://address=(host=h)(port=1)/d", "jdbc:mysql://h:port/d",
        "jdbc:mysql:loadbalance://h1,h2/d",
    ],
)  # fmt: skip
def test_places_that_python_has_no_form_for_are_refused(javas):
    with pytest.raises(ConfigurationError, match=r"jdbc:mysql://"):
        url_of(connection(javas), "test")


@pytest.mark.parametrize(
    "javas",
    [
        "jdbc:mysql://jobs:hidden@h/d?allowMultiQueries=true",
        "jdbc:oracle:thin:jobs/hidden@h:1521:d",
        "jdbc:sqlserver://h;user=jobs;password=hidden",
    ],
)
def test_a_refused_url_does_not_show_its_password(javas):
    with pytest.raises(ConfigurationError) as caught:
        url_of(connection(javas), "test")
    assert "hidden" not in str(caught.value)


def test_a_translated_url_reaches_the_server(mariadb_url):
    """PyMySQL refuses a parameter that it does not know when it connects."""
    place = mariadb_url.removeprefix("mariadb+pymysql://")
    query = place.partition("?")[2]
    javas = (
        "jdbc:mariadb://localhost/shop?user=penstock&password=secret&useSSL=false"
        "&serverTimezone=UTC&socketTimeout=9000"
    )
    engine = sa.create_engine(f"{url_of(connection(javas), 'test')}&{query}")
    with engine.connect() as made:
        assert made.execute(sa.text("SELECT 1")).scalar() == 1
    engine.dispose()


def test_urls_of_other_databases_are_refused():
    with pytest.raises(ConfigurationError, match="jdbc:postgresql"):
        url_of(connection("jdbc:oracle:thin:@h"), "test")
    assert url_of(connection("jdbc:sqlite:/a/b.db"), "test") == "sqlite:////a/b.db"
    with pytest.raises(ConfigurationError, match="with_url"):
        JdbcConnectionOptions.JdbcConnectionOptionsBuilder().build()


def test_options_say_what_was_set_and_begin_with_flinks_defaults():
    defaults = JdbcExecutionOptions.defaults()
    assert (defaults.get_batch_size(), defaults.get_batch_interval_ms()) == (5000, 0)
    assert defaults.get_max_retries() == 3
    builder = JdbcExecutionOptions.builder().with_batch_size(7).with_batch_interval_ms(8)
    built = builder.with_max_retries(9).build()
    assert (built.get_batch_size(), built.get_batch_interval_ms(), built.get_max_retries()) == (
        7,
        8,
        9,
    )
    with pytest.raises(
        ConfigurationError, match="with_batch_size must be at least 1, as a whole number, got 0"
    ):
        JdbcExecutionOptions.builder().with_batch_size(0)
