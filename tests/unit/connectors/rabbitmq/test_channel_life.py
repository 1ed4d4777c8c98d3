"""The states of a channel's life, square by square, and the lives that programs see. No client, no broker."""

import itertools

import pytest
from pika.heartbeat import HeartbeatChecker

from penstock.connectors.rabbitmq.channel_thread import (
    MOVES,
    NOT_FOUND,
    ChannelEvent,
    ChannelLife,
    ChannelState,
)
from penstock.connectors.rabbitmq.client import count_as_sign_of_life
from penstock.engine.model.errors import ExternalError, IllegalTransition

S, E = ChannelState, ChannelEvent
ACCESS_REFUSED = 403


def life_of(*, recovers=True, declares_again=True):
    return ChannelLife("a test", "h:5672", "q", recovers=recovers, declares_again=declares_again)


def ready(life):
    life.connect()
    assert life.channel_opened() is True
    assert life.queue_is_there()
    return life


def test_a_queue_that_is_there_is_looked_for_only():
    assert ready(life_of()).state is S.READY


def test_a_queue_that_is_missing_is_declared_on_another_channel():
    life = life_of()
    life.connect()
    assert life.channel_opened() is True
    assert life.channel_closed(NOT_FOUND, "no queue")
    assert life.channel_opened() is False
    assert life.queue_is_there()
    assert life.error is None


@pytest.mark.parametrize("code", [ACCESS_REFUSED, NOT_FOUND])
def test_a_channel_that_is_closed_in_the_middle_ends_the_life(code):
    """A queue that was there and is deleted is not made anew: its messages would be missing, and nobody would know."""
    life = ready(life_of())
    assert not life.channel_closed(code, "the broker's reason")
    assert life.is_ending
    assert "the queue 'q': the broker's reason." in str(life.error)
    assert not life.lose("closed")
    assert life.state is S.OVER
    assert isinstance(life.error, ExternalError)


def test_a_queue_that_cannot_be_declared_ends_the_life():
    life = life_of()
    life.connect()
    life.channel_opened()
    life.channel_closed(NOT_FOUND, "no queue")
    life.channel_opened()
    assert not life.channel_closed(ACCESS_REFUSED, "no rights")
    assert "no rights" in str(life.error)


@pytest.mark.parametrize("declares_again", [True, False])
def test_a_queue_that_is_missing_on_a_later_connection_is_made_anew_if_the_settings_say_so(
    declares_again,
):
    life = ready(life_of(declares_again=declares_again))
    assert life.lose("a reset")
    life.connect()
    assert life.channel_opened() is True
    assert life.channel_closed(NOT_FOUND, "no queue") is declares_again
    assert life.state is (S.DECLARING if declares_again else S.REFUSED)


def test_the_first_connection_is_not_tried_again():
    life = life_of()
    life.connect()
    assert not life.lose("refused")
    assert life.state is S.OVER
    assert str(life.error).startswith(
        "a test: the broker at h:5672 cannot be used: refused. Check that it is running"
    )


def test_without_recovery_a_lost_connection_is_the_end():
    life = ready(life_of(recovers=False))
    assert not life.lose("a reset")
    assert life.state is S.OVER
    assert str(life.error) == "a test: the broker at h:5672 was lost: a reset."


def test_with_recovery_it_goes_on_from_the_looking():
    life = ready(life_of())
    for _ in range(3):
        assert life.lose("a reset")
        assert life.state is S.APART
        assert not life.has_connection
        ready(life)
    assert life.error is None


def test_the_first_refusal_counts():
    life = ready(life_of())
    life.refuse("one")
    life.refuse("two")
    assert str(life.error) == "a test: one"


def test_who_closes_is_told_of_no_error():
    for refused in (False, True):
        life = ready(life_of(recovers=False))
        if refused:
            life.refuse("the reason")
        assert life.close()
        life.refuse("too late")
        assert not life.close()
        assert not life.lose("closed")
        assert (life.state, life.error) == (S.OVER, None)


def test_between_two_connections_there_is_nothing_to_close():
    life = ready(life_of())
    life.lose("a reset")
    assert not life.close()
    assert life.state is S.OVER


def test_what_the_broker_sent_before_it_knew_of_the_end_begins_nothing():
    opening = life_of()
    opening.connect()
    opening.close()
    assert opening.channel_opened() is None
    declared = life_of()
    declared.connect()
    declared.channel_opened()
    declared.close()
    assert not declared.queue_is_there()


@pytest.mark.parametrize(("state", "event"), list(itertools.product(S, E)))
def test_what_is_not_in_the_table_cannot_happen(state, event):
    life = life_of()
    life.state = state
    if (state, event) in MOVES:
        life._move(event)
        assert life.state is MOVES[state, event]
    else:
        with pytest.raises(IllegalTransition, match=f"is {state}, where '{event}' cannot happen"):
            life._move(event)


def test_each_state_is_reached_and_only_the_last_one_is_not_left():
    assert set(MOVES.values()) == set(S)
    left = {state for (state, _), to in MOVES.items() if to is not state}
    assert set(S) - left == {S.OVER}


class Timed:
    """A connection as the client's heartbeat checker knows it."""

    def __init__(self):
        self.bytes_received = self.bytes_sent = 0
        self.timers = []
        self.is_terminated = False

    def _adapter_call_later(self, delay, callback):
        self.timers.append((delay, callback))

    def _adapter_remove_timeout(self, timer):
        pass

    def _send_frame(self, frame):
        pass

    def _terminate_stream(self, reason):
        self.is_terminated = True

    def look(self):
        """The timer of the longest delay is the one that looks for signs of life."""
        timers, self.timers = self.timers, []
        max(timers, key=lambda timer: timer[0])[1]()


def test_pika_takes_what_lies_unread_for_a_sign_of_life_and_silence_for_death():
    connection = Timed()
    HeartbeatChecker(connection, 1)
    count_as_sign_of_life(connection)
    connection.look()
    assert not connection.is_terminated
    connection.look()
    assert connection.is_terminated
