"""Which programs are clients of a Spark Connect server. tests/spark/clusters/test_connect.py runs jobs of such programs."""

import sys
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from penstock.engine.hosting.program.connect_host import ConnectHost, connect_url
from penstock.engine.hosting.program.spark_host import SparkHost, default_host
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from tests.tools.small_servers import free_port

HERE, THERE = "sc://here:15002", "sc://there:15002"
MODULE = "pyspark.sql.connect.session"
pytestmark = pytest.mark.usefixtures("no_session")


@pytest.fixture
def no_session(monkeypatch):
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)


def settings(master=None):
    return Settings({} if master is None else {"penstock.spark.master": master})


def has_session(monkeypatch, session):
    sessions = SimpleNamespace(getActiveSession=lambda: None, _get_default_session=lambda: session)
    found = SimpleNamespace(SparkSession=sessions)
    monkeypatch.setitem(sys.modules, MODULE, found)


def test_nobody_names_a_server():
    assert connect_url(settings(), {}) is None
    assert connect_url(settings("local[2]"), {}) is None
    assert isinstance(default_host(), SparkHost)


@pytest.mark.parametrize(
    ("master", "spark", "remote", "url"),
    [
        (HERE, {}, None, HERE),
        (None, {"spark.master": HERE}, None, HERE),
        (None, {}, HERE, HERE),
        (HERE, {"spark.master": THERE}, THERE, HERE),
        (None, {"spark.master": HERE}, THERE, HERE),
        ("yarn", {}, HERE, None),
    ],
)
def test_whoever_names_a_master_first_gets_it(monkeypatch, master, spark, remote, url):
    if remote is not None:
        monkeypatch.setenv("SPARK_REMOTE", remote)
    assert connect_url(settings(master), spark) == url


def test_a_session_that_is_there_is_used(monkeypatch):
    has_session(monkeypatch, SimpleNamespace())
    assert connect_url(settings("yarn"), {}) == ""
    assert isinstance(default_host(), ConnectHost)
    has_session(monkeypatch, None)
    assert connect_url(settings(), {}) is None


def test_a_session_that_has_ended_is_an_error(monkeypatch):
    has_session(monkeypatch, SimpleNamespace())
    host = default_host()
    has_session(monkeypatch, None)
    with pytest.raises(ConfigurationError, match="session was stopped"):
        host.frame_of_files(settings(), "folder", None)


def test_what_follows_the_address_is_not_said(monkeypatch):
    url = f"sc://127.0.0.1:{free_port()}/;token=secret"
    host = default_host({"penstock.spark.master": url})
    with pytest.raises(ConfigurationError) as raised:
        host.frame_of_files(settings(), "folder", None)
    assert "sc://127.0.0.1:" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_spark_submits_master_comes_before_the_environments(monkeypatch):
    monkeypatch.setenv("SPARK_REMOTE", HERE)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert connect_url(settings(), {}) is None


def test_a_sparkcontext_of_this_process_comes_first(monkeypatch):
    has_session(monkeypatch, SimpleNamespace())
    monkeypatch.setattr(SparkContext, "_active_spark_context", SimpleNamespace())
    assert connect_url(settings(HERE), {}) is None
