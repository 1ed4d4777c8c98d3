"""Calls that do not return are left at their deadline."""

import threading
import weakref

import pytest

from penstock.engine.hosting.os.clock import NoAnswer, progress, within
from penstock.engine.model.errors import ExternalError

LONG_S = 30
LIMIT_S = 1 / 64


class Client:
    def __init__(self):
        self.freed = threading.Event()
        self.is_over = threading.Event()

    def hang(self):
        assert self.freed.wait(LONG_S)
        self.is_over.set()

    def refuse(self):
        raise ValueError("no")


def test_what_a_call_returns_or_raises_is_what_the_caller_gets():
    assert within(LONG_S, lambda: 7, "it") == 7
    with pytest.raises(ValueError, match="no"):
        within(LONG_S, Client().refuse, "it")


def test_a_call_that_does_not_return_is_an_external_error_and_is_left_to_itself():
    client = Client()
    with pytest.raises(NoAnswer, match=r"the sink cannot commit: .* within 0\.01 s") as caught:
        within(0.01, client.hang, "the sink cannot commit")
    assert isinstance(caught.value, ExternalError)
    client.freed.set()
    assert client.is_over.wait(LONG_S)


def test_the_client_ends_with_the_error_without_a_collection_of_garbage():
    client = Client()
    known = weakref.ref(client)
    try:
        within(LONG_S, client.refuse, "it")
    except ValueError:
        del client
    assert known() is None


class Clock:
    """Stands still until it is moved. The thread that makes it is its owner."""

    def __init__(self):
        self.now_s = 0.0
        self._owner = threading.current_thread()
        self._has_looked = threading.Event()

    def __call__(self):
        if threading.current_thread() is self._owner:
            self._has_looked.set()
        return self.now_s

    def move(self, by_s):
        """Return when the owner has looked."""
        self.now_s += by_s
        self._has_looked.clear()
        assert self._has_looked.wait(LONG_S)


def test_each_answer_that_a_call_notes_begins_its_deadline_anew(monkeypatch):
    """It takes longer than the deadline in all, and less each time."""
    clock = Clock()
    monkeypatch.setattr("penstock.engine.hosting.os.clock.monotonic", clock)

    def asks_often():
        for _ in range(6):
            clock.move(LIMIT_S / 2)
            progress()
        return clock.now_s

    assert within(LIMIT_S, asks_often, "it") == 3 * LIMIT_S


def test_a_call_that_was_left_goes_no_further_than_its_next_answer():
    client, refused, changed = Client(), threading.Event(), []

    def commits_late():
        client.hang()
        try:
            progress()
        except NoAnswer:
            refused.set()
            raise
        changed.append("committed")

    with pytest.raises(NoAnswer):
        within(0.01, commits_late, "it")
    client.freed.set()
    assert refused.wait(LONG_S)
    assert not changed


def test_progress_outside_of_a_call_does_nothing():
    progress()
