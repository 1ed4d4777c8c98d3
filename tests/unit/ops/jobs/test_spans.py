"""Spans and events as logs show them. Source: Flink Slf4jTraceReporter, Slf4jEventReporter."""

from penstock.ops.jobs.job_traces import Event, Span


def test_a_span_is_a_line_as_flinks_log_has_it():
    child = Span("s", "c", 2, 3, {})
    assert str(Span("s", "n", 1, 5, {"a": 1, "b": "x"}, (child,))) == (
        "SimpleSpan{scope=s, name=n, startTsMillis=1, endTsMillis=5, attributes={a=1, b=x}, "
        "children=[SimpleSpan{scope=s, name=c, startTsMillis=2, endTsMillis=3, attributes={}, "
        "children=[]}]}"
    )


def test_an_event_is_a_line_too():
    assert str(Event("s", "n", 7, {"a": 1})) == (
        "SimpleEvent{scope=s, name=n, observedTsMillis=7, attributes={a=1}}"
    )
