"""TaskMailbox and MailboxProcessor, by docs/spec/tasks.md#mailbox, #mailbox-loop."""

import pytest

from penstock.engine.model.errors import EngineBug
from penstock.engine.runtime.task.mailbox import (
    MAX_PRIORITY,
    MIN_PRIORITY,
    MailboxClosed,
    MailboxState,
)
from tests.tools.runtime.mailboxes import Threads, mail


def names(mails):
    return [one.description for one in mails]


# ---------------------------------------------------------------------- mailbox


def test_a_batch_does_not_take_what_comes_after_it_was_made():
    mailbox = Threads().mailbox()
    mailbox.put(mail("a"))
    assert mailbox.create_batch()
    mailbox.put(mail("b"))
    assert mailbox.try_take_from_batch().description == "a"
    assert mailbox.try_take_from_batch() is None
    assert mailbox.has_mail
    assert mailbox.size == 1


def test_what_is_put_first_goes_before_the_batch_or_from_elsewhere_before_the_queue():
    threads = Threads()
    mailbox = threads.mailbox()
    mailbox.put(mail("batch"))
    mailbox.create_batch()
    mailbox.put(mail("queue"))
    with threads.elsewhere():
        mailbox.put_first(mail("from elsewhere"))
    mailbox.put_first(mail("own"))
    taken = [mailbox.try_take(MIN_PRIORITY) for _ in range(4)]
    assert names(taken) == ["own", "batch", "from elsewhere", "queue"]


def test_a_taker_gets_the_first_mail_of_its_priority_or_above():
    mailbox = Threads().mailbox()
    for name, priority in [("low", 0), ("mid", 1), ("high", MAX_PRIORITY)]:
        mailbox.put(mail(name, priority))
    assert mailbox.try_take(1).description == "mid"
    assert mailbox.try_take(1).description == "high"
    assert mailbox.try_take(1) is None
    assert mailbox.size == 1


def test_a_quiesced_mailbox_gives_but_does_not_take_and_a_closed_one_neither():
    mailbox = Threads().mailbox()
    mailbox.put(mail("a"))
    mailbox.put(mail("b"))
    mailbox.quiesce()
    with pytest.raises(MailboxClosed):
        mailbox.put(mail("late"))
    with pytest.raises(MailboxClosed):
        mailbox.put_first(mail("late"))
    assert mailbox.try_take(MIN_PRIORITY).description == "a"
    assert names(mailbox.close()) == ["b"]
    assert mailbox.state is MailboxState.CLOSED
    with pytest.raises(MailboxClosed):
        mailbox.try_take(MIN_PRIORITY)
    with pytest.raises(MailboxClosed):
        mailbox.put(mail("late"))


@pytest.mark.parametrize("act", ["drain", "quiesce", "close"])
def test_only_the_mailbox_thread_changes_the_mailbox(act):
    threads = Threads()
    mailbox = threads.mailbox()
    with threads.elsewhere(), pytest.raises(EngineBug, match="only the mailbox thread"):
        getattr(mailbox, act)()
    with threads.elsewhere(), pytest.raises(EngineBug, match="only the mailbox thread"):
        mailbox.try_take(MIN_PRIORITY)


def test_a_put_wakes_the_mailbox_thread():
    threads = Threads()
    mailbox = threads.mailbox()
    with threads.elsewhere():
        mailbox.put(mail("a"))
    assert threads.wakes == 1


# ---------------------------------------------------------------------- processor


def looping(threads, turns, log):
    """A processor whose default action logs and completes at its last turn."""

    def act(processor):
        log.append("default")
        if log.count("default") == turns:
            processor.all_actions_completed()

    return threads.processor(act)


def test_mails_that_put_mails_do_not_starve_the_default_action():
    log = []
    processor = looping(Threads(), 3, log)

    def again():
        log.append("mail")
        processor.mailbox.put(mail("again", action=again))

    processor.mailbox.put(mail("first", action=again))
    processor.run_mailbox_loop()
    assert log == ["mail", "default"] * 3


def test_a_suspended_default_action_rests_until_it_is_resumed_and_mails_run_meanwhile():
    log, suspensions = [], []

    def act(processor):
        log.append("default")
        if len(suspensions) == 1:
            processor.all_actions_completed()
        else:
            suspensions.append(processor.suspend_default_action())

    def put() -> None:
        processor.mailbox.put(mail("m", action=lambda: log.append("mail")))

    def resume() -> None:
        suspensions[0].resume()

    threads = Threads(put, resume)
    processor = threads.processor(act)
    processor.run_mailbox_loop()
    assert log == ["default", "mail", "default"]


def test_input_news_end_a_suspension_for_input_only():
    log = []

    def act(processor):
        log.append("default")
        if len(log) == 1:
            processor.suspend_default_action(until_output=True)
        else:
            processor.all_actions_completed()

    def input_comes():
        before = threads.wakes
        processor.notify_input()
        assert threads.wakes == before
        log.append("input")

    def output_comes():
        processor.notify_output()
        log.append("output")

    threads = Threads(input_comes, output_comes)
    processor = threads.processor(act)
    processor.run_mailbox_loop()
    assert log == ["default", "input", "output", "default"]


def test_news_that_came_while_the_default_action_ran_are_not_lost():
    threads, log = Threads(), []

    def act(processor):
        log.append("default")
        if len(log) == 1:
            with threads.elsewhere():
                processor.notify_input()  # after it looked, before it suspends
            processor.suspend_default_action(until_input=True)
        else:
            processor.all_actions_completed()

    threads.processor(act).run_mailbox_loop()
    assert log == ["default", "default"]


def test_a_suspension_with_a_time_ends_by_itself_and_counts_as_what_it_waited_for():
    threads, log = Threads(), []

    def act(processor):
        log.append(threads.ns)
        if len(log) == 1:
            processor.suspend_default_action(0.5, until_input=True)
        elif len(log) == 2:
            processor.suspend_default_action(0.25, until_output=True)
        else:
            processor.all_actions_completed()

    processor = threads.processor(act)
    processor.run_mailbox_loop()
    assert log == [0, 500_000_000, 750_000_000]
    assert (processor.idle_ns, processor.backpressured_ns) == (500_000_000, 250_000_000)


def test_a_stale_resume_does_nothing():
    threads = Threads()
    first = []

    def act(processor):
        if not first:
            first.append(processor.suspend_default_action(0.1))
        elif len(first) == 1:
            first.append(processor.suspend_default_action(0.1))
            first[0].resume()
            assert processor.is_default_action_suspended
        else:
            processor.all_actions_completed()

    threads.processor(act).run_mailbox_loop()


def test_the_default_action_is_suspended_once_and_by_its_own_thread():
    threads = Threads()
    processor = threads.processor()
    processor.suspend_default_action()
    with pytest.raises(EngineBug, match="suspended already"):
        processor.suspend_default_action()
    with threads.elsewhere(), pytest.raises(EngineBug, match="only the mailbox thread"):
        processor.suspend_default_action()


def test_a_reported_error_is_raised_in_the_loop_before_other_mails():
    threads, log = Threads(), []
    processor = threads.processor()
    processor.mailbox.put(mail("m", action=lambda: log.append("mail")))
    with threads.elsewhere():
        processor.report_error(ValueError("boom"))
    with pytest.raises(ValueError, match="boom"):
        processor.run_mailbox_loop()
    assert log == []


def test_a_suspended_loop_can_be_entered_again_and_a_completed_one_does_nothing():
    log = []

    def act(processor):
        log.append("default")
        processor.suspend()

    processor = Threads().processor(act)
    processor.run_mailbox_loop()
    processor.run_mailbox_loop()
    assert log == ["default", "default"]
    processor.all_actions_completed()
    processor.drain()
    processor.run_mailbox_loop()
    assert log == ["default", "default"]


def test_a_yield_runs_mails_of_the_operator_and_of_those_downstream_only():
    threads, log = Threads(), []
    processor = threads.processor()
    for name, priority in [("up", 0), ("own", 2), ("down", 3)]:
        processor.executor(priority).execute(lambda name=name: log.append(name))
    processor.executor(3).execute(lambda: log.append("deferred"), is_deferrable=True)
    own = processor.executor(2)
    while own.try_yield():
        pass
    assert log == ["own", "down"]
    processor.drain()
    assert log == ["own", "down", "up", "deferred"]


def test_a_blocking_yield_waits_for_its_mail():
    log = []
    threads = Threads(lambda: None, lambda: processor.executor(1).execute(lambda: log.append("m")))
    processor = threads.processor()
    processor.executor(1).yield_()
    assert log == ["m"]


def test_control_mails_of_a_closed_mailbox_are_dropped():
    processor = Threads().processor()
    processor.mailbox.close()
    processor.all_actions_completed()
    processor.suspend()
    processor.report_error(ValueError())
    assert processor.mailbox.size == 0
    assert not processor.is_idle


def test_a_wait_that_lasts_counts_while_it_lasts():
    threads = Threads(lambda: seen.append(processor.waited_ns(threads.ns + 70)))
    seen = []

    def act(processor):
        if not seen:
            processor.suspend_default_action(1.0, until_output=True)
        else:
            processor.all_actions_completed()

    processor = threads.processor(act)
    processor.run_mailbox_loop()
    assert seen == [(0, 70)]
