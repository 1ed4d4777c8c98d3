"""ReceiverCredit: which buffers a channel has, and when it says so (docs/spec/exchange.md#credit)."""

import threading

import pytest

from penstock.engine.model.errors import EngineBug
from penstock.engine.runtime.network.gate.credit import ReceiverCredit, frames_for
from penstock.engine.runtime.network.network_memory import (
    LocalBufferPool,
    NetworkMemory,
    PoolLimits,
)


def pool_of(buffers: int) -> LocalBufferPool:
    memory = NetworkMemory(
        max(1, buffers) * 1024, threading.Lock, segment_bytes=1024, max_buffer_bytes=1024
    )
    return memory.create_pool(PoolLimits(buffers, buffers))


def credit_of(exclusive: int = 2, floating: int = 8) -> tuple[ReceiverCredit, LocalBufferPool]:
    pool = pool_of(floating)
    return ReceiverCredit(exclusive, pool, lambda: False), pool


def test_a_backlog_takes_floating_buffers_and_each_is_a_credit():
    credit, pool = credit_of()
    assert credit.on_backlog(6)
    assert (credit.required, credit.available, pool.in_use) == (8, 8, 6)
    assert credit.announce() == 6
    assert not credit.on_backlog(6)
    assert not credit.on_backlog(0)
    assert pool.in_use == 6


def test_when_the_pool_is_used_up_the_channel_waits_once():
    credit, pool = credit_of(floating=3)
    credit.on_backlog(6)
    assert (credit.unannounced, credit.is_waiting, pool.in_use) == (3, True, 3)
    credit.on_backlog(7)
    assert credit.unannounced == 3


def test_frames_fill_floating_buffers_before_exclusive_ones():
    credit, _ = credit_of(exclusive=1, floating=1)
    credit.on_backlog(1)
    assert [credit.take(), credit.take()] == [True, False]
    with pytest.raises(EngineBug, match="without credit"):
        credit.take()


def test_an_exclusive_buffer_that_is_empty_again_is_a_credit():
    credit, _ = credit_of()
    credit.on_backlog(0)
    credit.take()
    assert credit.recycle_exclusive() == (False, True)
    assert (credit.unannounced, credit.available) == (1, 2)


def test_with_more_than_required_a_floating_buffer_is_given_back_instead():
    credit, _ = credit_of()
    credit.on_backlog(2)
    for _ in range(3):
        credit.take()
    credit.on_backlog(0)  # two are required, one exclusive one is at hand
    credit.announce()
    credit.available_floating = 1
    assert credit.recycle_exclusive() == (True, False)
    assert (credit.unannounced, credit.available) == (0, 2)


def test_an_offered_buffer_is_refused_when_it_is_not_needed_any_more():
    credit, pool = credit_of(floating=0)
    credit.on_backlog(1)
    assert credit.is_waiting
    credit.required = 2
    assert credit.on_floating_offered() == (False, False)
    assert not credit.is_waiting
    assert pool.in_use == 0


def test_with_an_offered_buffer_the_channel_asks_on():
    credit, pool = credit_of(floating=2)
    pool.request()
    pool.request()
    credit.on_backlog(3)
    assert credit.is_waiting
    pool.in_use = 1  # both come back, one of them is offered
    assert credit.on_floating_offered() == (True, True)
    assert (credit.unannounced, credit.is_waiting, pool.in_use) == (2, True, 2)


def test_only_the_first_gain_makes_a_message_due_and_it_carries_all():
    credit, _ = credit_of()
    assert credit.gain(3)
    assert not credit.gain(2)
    assert credit.announce() == 5
    assert not credit.gain(0)


def test_a_message_waits_while_the_sender_has_more_than_it_would_bring():
    credit, _ = credit_of(exclusive=4)
    assert not credit.is_worth_telling
    credit.take()
    credit.recycle_exclusive()
    assert not credit.is_worth_telling  # 1 to tell, 3 left
    credit.take()
    credit.recycle_exclusive()
    assert credit.is_worth_telling  # 2 to tell, 2 left
    credit.announce()
    assert credit.outstanding == 4


def test_without_exclusive_buffers_credit_comes_of_the_backlog_alone():
    credit, _ = credit_of(exclusive=0, floating=4)
    assert credit.available == 0
    assert credit.on_backlog(2)
    assert credit.is_worth_telling
    assert credit.announce() == 2


def test_a_destroyed_pool_gives_nothing():
    credit, pool = credit_of()
    pool.destroy()
    assert not credit.on_backlog(6)
    assert not credit.is_waiting


def test_a_channel_that_lets_go_waits_for_nothing_and_says_what_it_had():
    credit, pool = credit_of(floating=2)
    credit.on_backlog(6)
    assert credit.release_floating() == 2
    assert not credit.is_waiting
    assert credit.available_floating == 0
    assert pool.add_listener(lambda: True), "nobody is before it"


def test_one_credit_is_not_worth_a_message_while_the_sender_has_one():
    credit, _ = credit_of(exclusive=2, floating=0)
    credit.take()
    credit.recycle_exclusive()
    assert (credit.unannounced, credit.outstanding) == (1, 1)
    assert not credit.is_worth_telling
    credit.take()
    assert credit.is_worth_telling, "it has none left"


def test_a_sender_without_credit_is_told_of_one_at_once():
    credit, _ = credit_of(exclusive=1, floating=0)
    credit.take()
    assert not credit.is_worth_telling
    credit.recycle_exclusive()
    assert credit.is_worth_telling


# ---------------------------------------------------------------------- few records may wait


def test_with_a_limit_only_so_many_frames_wait_or_are_on_their_way():
    credit = ReceiverCredit(2, pool_of(8), lambda: False, most=1)
    assert credit.outstanding == 1
    credit.on_backlog(6)
    assert not credit.is_worth_telling
    credit.take()
    assert not credit.is_worth_telling
    credit.filled -= 1
    assert credit.is_worth_telling
    assert credit.announce() == 1
    assert not credit.is_worth_telling


def test_what_was_held_back_is_told_when_the_limit_is_lifted():
    credit = ReceiverCredit(2, pool_of(8), lambda: False, most=1)
    credit.on_backlog(6)
    credit.most = None
    assert credit.is_worth_telling
    assert credit.announce() == 7
    assert credit.outstanding == 8


def test_a_few_frames_hold_what_may_wait():
    assert [frames_for(rows) for rows in (None, 1, 3, 4, 10_000)] == [None, 1, 3, 4, 4]
