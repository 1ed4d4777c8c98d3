"""When a reporter that pushes does so."""

import threading

from penstock.ops.reporters.pushing import PushingReporter

LONG_S = 3600.0


class Calls:
    """Tells of each call; raises on the first."""

    def __init__(self):
        self.count = 0
        self.third = threading.Event()

    def __call__(self):
        self.count += 1
        if self.count == 1:
            raise ValueError("planned")
        if self.count == 3:
            self.third.set()


def test_it_reports_again_and_again_even_after_an_error(caplog):
    calls = Calls()
    reporter = PushingReporter("x", 0.001, calls)
    assert calls.third.wait(30)
    reporter.stop()
    assert "reporter=x NOT REPORTED cause=planned" in caplog.text


def test_the_first_report_comes_after_one_interval_and_the_end_without_one():
    told = []
    reporter = PushingReporter(
        "x", LONG_S, lambda: told.append("report"), lambda: told.append("end")
    )
    reporter.stop()
    assert told == ["end"]


def test_an_end_that_fails_is_logged(caplog):
    def end():
        raise OSError("gone")

    PushingReporter("x", LONG_S, lambda: None, end).stop()
    assert "reporter=x NOT REPORTED cause=gone" in caplog.text
