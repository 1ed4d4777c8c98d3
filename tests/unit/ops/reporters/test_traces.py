"""Reporters of spans and events: what they take, and how long it waits."""

import logging

import pytest

from penstock.engine.model.config import Settings
from penstock.engine.model.messages import JobStatusChanged
from penstock.engine.model.states import JobStatus
from penstock.ops.jobs.job_traces import Event, Span
from penstock.ops.registry.job_registry import JobRegistry
from penstock.ops.reporters import traces
from penstock.ops.reporters.running import running_reporter, start_reporters, stop_reporters
from penstock.ops.reporters.settings import HAPPENINGS, SPANS, ReporterSettings
from penstock.ops.reporters.traces import TraceReporter
from tests.tools.observation.job_records import facts
from tests.tools.waiting import wait_until

SLF4J = "org.apache.flink.traces.slf4j.Slf4jTraceReporterFactory"
EVENTS = "org.apache.flink.events.slf4j.Slf4jEventReporterFactory"
SPAN = Span("my.scope", "Checkpoint", 1, 2, {"a": 1})
EVENT = Event("my.scope", "JobStatusChangeEvent", 1, {})


@pytest.fixture
def jobs(monkeypatch):
    made = JobRegistry()
    monkeypatch.setattr(traces.job_registry, "JOB_REGISTRY", made)
    yield made
    stop_reporters()


def settings(kind=SPANS, **more):
    own = {f"{kind.prefix}x.{key.replace('_', '.')}": value for key, value in more.items()}
    return ReporterSettings("x", Settings(own), kind)


class Delivered:
    """`refuses`: what is delivered is not taken."""

    def __init__(self) -> None:
        self.found = []
        self.refuses = False
        self.calls = 0

    def __call__(self, ones) -> None:
        self.calls += 1
        if self.refuses:
            raise OSError("nobody is there")
        self.found += ones


def reporter(to, kind=SPANS, interval_s=0.01, **more):
    return TraceReporter(settings(kind, **more), to, interval_s=interval_s)


def happens(jobs, *ones):
    for listener in jobs.listeners:
        for one in ones:
            listener(one)


def test_a_reporter_takes_either_spans_or_events(jobs):
    spans, events = Delivered(), Delivered()
    both = [reporter(spans), reporter(events, HAPPENINGS)]
    happens(jobs, SPAN, EVENT)
    for one in both:
        one.stop()
    assert (spans.found, events.found) == ([SPAN], [EVENT])
    assert jobs.listeners == ()


def test_filters_and_additional_variables_count(jobs):
    to = Delivered()
    one = reporter(
        to,
        filter_includes="my.*:Checkpoint,Other",
        filter_excludes="*:Other",
        scope_variables_additional="zone:1",
    )
    happens(jobs, SPAN, Span("my.scope", "Other", 1, 2, {}), Span("your", "Checkpoint", 1, 2, {}))
    one.stop()
    assert [(span.name, span.attributes) for span in to.found] == [
        ("Checkpoint", {"zone": "1", "a": 1})
    ]


def test_what_could_not_be_delivered_comes_again_once_and_in_order(jobs, caplog):
    to = Delivered()
    to.refuses = True
    one = reporter(to)
    happens(jobs, SPAN)
    wait_until(lambda: to.calls > 1, "it is not tried again")
    second = Span("my.scope", "Second", 3, 4, {})
    happens(jobs, second)
    to.refuses = False
    one.stop()
    assert to.found == [SPAN, second]
    assert "reporter=traces.x NOT REPORTED cause=nobody is there" in caplog.text


def test_only_so_many_wait_and_the_others_are_told(jobs, monkeypatch, caplog):
    monkeypatch.setattr(traces, "MOST_WAITING", 2)
    to = Delivered()
    one = reporter(to, interval_s=1000)
    happens(jobs, *(Span("s", str(number), 1, 2, {}) for number in range(5)))
    one.stop()
    assert [span.name for span in to.found] == ["0", "1"]
    assert "reporter=traces.x LEFT OUT count=3" in caplog.text


def test_many_are_delivered_in_pieces_and_none_twice(jobs, monkeypatch):
    monkeypatch.setattr(traces, "MOST_AT_ONCE", 2)
    to = Delivered()
    one = reporter(to, interval_s=1000)
    happens(jobs, *(Span("s", str(number), 1, 2, {}) for number in range(5)))
    one.stop()
    assert [span.name for span in to.found] == ["0", "1", "2", "3", "4"]
    assert to.calls == 3


def test_what_was_recorded_before_the_end_is_delivered(jobs):
    to = Delivered()
    one = reporter(to, HAPPENINGS, interval_s=1000)
    jobs.watch(facts()).observe(JobStatusChanged(JobStatus.RUNNING, 0))
    one.stop()
    assert [event.attributes["newJobStatus"] for event in to.found] == ["RUNNING"]


def test_reporters_to_the_log_are_started_by_flinks_keys(jobs, caplog):
    given = {
        "traces.reporter.t.factory.class": SLF4J,
        "events.reporter.t.factory.class": EVENTS,
    }
    with caplog.at_level(logging.INFO):
        assert start_reporters(Settings(given))
        assert running_reporter("traces.t") is not running_reporter("events.t")
        happens(jobs, SPAN, EVENT)
        stop_reporters()
    lines = [(one.name, one.getMessage()) for one in caplog.records if "Reported" in one.msg]
    assert sorted(lines) == [
        ("penstock.events", f"Reported event: {EVENT}"),
        ("penstock.traces", f"Reported span: {SPAN}"),
    ]


def test_a_factory_that_there_is_not_is_told_with_its_key(jobs, caplog):
    assert not start_reporters(Settings({"traces.reporter.t.factory.class": EVENTS}))
    assert (
        "reporter=traces.t NOT STARTED cause=option 'traces.reporter.t.factory.class'"
        in caplog.text
    )
