"""Calls that do not return are left at their deadline."""

import threading
import weakref

import pytest

from penstock.datastream.clients.deadline import NoAnswer, within
from penstock.model.errors import ExternalError

LONG_S = 30


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
