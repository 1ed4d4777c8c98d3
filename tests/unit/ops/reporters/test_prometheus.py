"""What Prometheus gets when it scrapes a driver. Source: Flink PrometheusReporter."""

import asyncio
import errno
import os
import socket
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack

import pytest

from penstock.engine.metrics.scopes import Component, Place
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.metrics import Measured, MetricType, Quantiles
from penstock.ops.reporters import prometheus as module
from penstock.ops.reporters.prometheus import PrometheusReporter
from penstock.ops.reporters.settings import ReporterSettings
from tests.tools.hosting.prometheus import promtool_says
from tests.tools.relay import closed_by_peer

SEEN = "flink_taskmanager_my_grp_seen"
LINES = f"""\
# HELP {SEEN} seen (scope: taskmanager_my_grp)
# TYPE {SEEN} gauge
{SEEN}{{host="h_1",tm_id="tm_1"}} 7.0
# HELP flink_taskmanager_events events (scope: taskmanager)
# TYPE flink_taskmanager_events gauge
flink_taskmanager_events{{host="h_1",tm_id="tm_1"}} 8.25
"""


def settings(port="0", bind_address="localhost", **more):
    own = {f"metrics.reporter.x.{key}": value for key, value in more.items()}
    own["penstock.metrics.prometheus.bind-address"] = bind_address
    return ReporterSettings("x", Settings({"metrics.reporter.x.port": port, **own}))


@pytest.fixture
def start(job_registry):
    running = []

    def begin(*given, **more):
        running.append(PrometheusReporter(settings(*given, **more)))
        return running[-1]

    yield begin
    for one in running:
        one.stop()


def get(reporter, path="/metrics", headers=()):
    host, port = reporter.address
    request = urllib.request.Request(f"http://{host}:{port}{path}", headers=dict(headers))
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers, answer.read()


def test_a_page_has_flinks_form(start):
    headers, page = get(start())
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert LINES in page.decode()


@pytest.mark.foreign
def test_promtool_understands_every_kind_of_metric(start, job_registry):
    quantiles = [50.0, float("nan"), 90.0, 95.0, 98.0, 99.0, 99.9]
    measured = [
        Measured("sizes", MetricType.HISTOGRAM, Quantiles(3, 1, 3, 2.0, 1.0, *quantiles)),
        Measured("text", MetricType.GAUGE, 'a "text"\\'),
        Measured("flag", MetricType.GAUGE, value=True),
        Measured("nan", MetricType.GAUGE, float("nan")),
        Measured("infinite", MetricType.GAUGE, float("-inf")),
        Measured("ü \n", MetricType.COUNTER, 2**62, (("a:\nb", 'c"\\d\n'),)),
    ]
    place = Place(Component.JM_JOB, {"host": 'h"\n\\', "job_id": "j", "job_name": "ü"})
    with job_registry.metrics() as store:
        store.put(place, measured)
    _, page = get(start(filterLabelValueCharacters="false"))
    style = "should be written in 'snake_case' not 'camelCase'"
    assert [line for line in promtool_says(page) if style not in line] == []
    text = page.decode()
    labels = 'host="h\\"\\n\\\\",job_id="j",job_name="ü"'
    for line in (
        f'flink_jobmanager_job_sizes{{{labels},quantile="0.75"}} NaN',
        f"flink_jobmanager_job_sizes_count{{{labels}}} 3.0",
        f"flink_jobmanager_job_text{{{labels}}} 0.0",
        f"flink_jobmanager_job_flag{{{labels}}} 1.0",
        f"flink_jobmanager_job_nan{{{labels}}} NaN",
        f"flink_jobmanager_job_infinite{{{labels}}} -Inf",
    ):
        assert line in text.splitlines()


@pytest.mark.parametrize("path", ["/", "/foo", "/foo/bar?x=1", "/metrics"])
def test_every_path_answers(start, path):
    assert LINES in get(start(), path)[1].decode()


def test_a_client_can_ask_for_some_names(start):
    _, page = get(start(), f"/?name[]={SEEN}&name[]=nothing")
    assert [line.split("{")[0] for line in page.decode().splitlines()] == [
        f"# HELP {SEEN} seen (scope: taskmanager_my_grp)", f"# TYPE {SEEN} gauge", SEEN,
    ]  # fmt: skip


def test_only_what_the_reporter_shows_is_there(start):
    _, page = get(start(**{"filter.includes": "*:*:meter", "scope.variables.excludes": "host"}))
    lines = [line for line in page.decode().splitlines() if "taskmanager_events" in line]
    assert lines[-1] == 'flink_taskmanager_events{tm_id="tm_1"} 8.25'
    assert SEEN not in page.decode()


def test_it_listens_on_a_loopback_address(start):
    assert start().address[0] in {"127.0.0.1", "::1"}


def test_a_taken_port_is_passed_over(start):
    first = start().address[1]
    second = start(f"{first},0").address[1]
    assert second not in {0, first}


def test_two_drivers_have_not_the_same_port(start):
    first = start().address[1]
    with pytest.raises(ConfigurationError, match=f"no port of {first} to {first}"):
        start(str(first))


def test_a_client_that_says_nothing_does_not_hold_up_others(start):
    reporter = start()
    with socket.create_connection(reporter.address):
        assert LINES in get(reporter)[1].decode()


def test_values_are_those_of_the_moment(start, job_registry):
    reporter = start()
    get(reporter)
    with job_registry.metrics() as store:
        store.forget_taskmanager("tm-1")
    assert SEEN not in get(reporter)[1].decode()


def test_silent_clients_take_no_threads_and_keep_nobody_out(start, monkeypatch, caplog):
    monkeypatch.setattr(module, "_MOST_SCRAPES", 3)
    reporter = start()
    before = threading.active_count()
    with ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(reporter.address)) for _ in range(20)
        ]
        _, page = get(reporter)
        assert LINES in page.decode()
        assert all(map(closed_by_peer, silent[:18]))
        assert threading.active_count() <= before + 1
    assert caplog.text.count("peer=127.0.0.1 REFUSED cause=3 connections are open") == 1


def test_without_a_descriptor_it_waits_and_says_so(start, monkeypatch, caplog):
    """Else the listening socket would be ready again and again, and the thread would turn without a pause."""
    monkeypatch.setattr(asyncio.selector_events.constants, "ACCEPT_RETRY_DELAY", 0.01)
    left = iter([False, False, True])
    accept = socket.socket.accept

    def full(self):
        if next(left, True):
            return accept(self)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket.socket, "accept", full)
    _, page = get(start())
    assert LINES in page.decode()
    assert caplog.text.count("socket.accept() out of system resource") == 2


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}], ids=str
)
def test_pages_of_other_servers_read_nothing(start, headers):
    """Neither across sites, nor one that gave its own name our address (DNS rebinding)."""
    with pytest.raises(urllib.error.HTTPError, match="403"):
        get(start(), headers=headers)


def test_at_an_address_that_other_machines_reach_any_name_is_taken(start):
    """Whoever reaches it reads all metrics: the option says so."""
    reporter = start(bind_address="0.0.0.0")
    with socket.create_connection(("127.0.0.1", reporter.address[1])) as sock:
        sock.sendall(b"GET / HTTP/1.0\r\nHost: driver.example\r\n\r\n")
        assert b" 200 " in sock.recv(100)
