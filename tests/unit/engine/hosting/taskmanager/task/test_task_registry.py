"""Figures of a task that no other test sees: its mailbox, its times, its longest wait."""

import threading
import time

from penstock.engine.hosting.taskmanager.task.metrics import (
    PROBE_NS,
    MailboxProbe,
    TaskTimes,
    TimeFigures,
)
from penstock.engine.runtime.task.mailbox import MailboxProcessor, TaskMailbox


def test_a_probe_is_put_once_a_second_and_only_when_the_last_one_is_back():
    mails = []
    probe = MailboxProbe(mails.append)
    now_ns = time.perf_counter_ns()
    probe.tick(now_ns)
    probe.tick(now_ns + 5 * PROBE_NS)
    assert len(mails) == 1, "the first one still waits"
    mails[0]()
    assert probe.latencies.count == 1
    probe.tick(now_ns + PROBE_NS - 1)
    assert len(mails) == 1, "no second has passed"
    probe.tick(now_ns + PROBE_NS)
    assert len(mails) == 2


def test_the_initialization_lasts_until_the_task_runs():
    times = TaskTimes(began_ns=0)
    assert times.initialization_ms == 0
    times.initializing_ns, times.ended_ns = 5_000_000, 9_000_000
    assert times.initialization_ms == 4, "it failed before it ran"
    times.running_ns = 7_000_000
    assert times.initialization_ms == 2


def test_the_longest_wait_for_an_output_is_that_of_the_last_window():
    mailbox = TaskMailbox(threading.Lock(), lambda: None, lambda _s: False, lambda: True)
    processor = MailboxProcessor(
        mailbox, lambda _p: None, lambda: None, lambda: True, time.perf_counter_ns
    )
    times = TaskTimes(began_ns=1, ended_ns=1_000_000_000)
    figures = TimeFigures(processor, times)
    processor.backpressured_ns = 300_000_000
    processor.longest_blocked_ns = 200_000_000
    figures.update()
    assert figures.longest_blocked_ms == 200
    figures.update()
    assert figures.longest_blocked_ms == 0
    processor.waits = (400_000_000, True)
    figures.update()
    assert figures.longest_blocked_ms == 600, "a wait that lasts counts so far"
    figures.measure()
    assert (figures.blocked_ms, figures.idle_ms) == (900, 0)
