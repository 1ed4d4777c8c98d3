"""Which requests a listener takes at all. More of it stands in the tests of the REST server's access."""

import pytest

from penstock.engine.hosting.network.http_access import name_of, refusal_of_page


def test_the_refusal_says_which_names_there_are_and_what_to_do_for_another_one():
    why = refusal_of_page({"host": "b:1"}, {"a", "::1"}, "set x", changes=True)
    assert why == "This server is not called 'b:1'. Call it by one of ::1, a, or set x."


@pytest.mark.parametrize(
    ("headers", "changes", "is_refused"),
    [
        ({}, True, False),
        ({"origin": "http://a:1"}, True, False),
        ({"origin": "http://a:2"}, False, True),
        ({"origin": "null"}, False, True),
        ({"sec-fetch-site": "cross-site"}, True, True),
        ({"sec-fetch-site": "cross-site"}, False, False),
    ],
)
def test_pages_of_others_change_nothing_and_ask_nothing(headers, changes, is_refused):
    why = refusal_of_page({"host": "a:1"} | headers, {"a"}, "", changes=changes)
    assert (why is not None) == is_refused


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("a:1", "a"),
        ("A", "a"),
        ("[::1]:80", "::1"),
        ("[::1]", "::1"),
        ("", ""),
        ("[::1].evil.example", "[::1].evil.example"),
    ],
)
def test_the_name_in_a_host_header(host, name):
    assert name_of(host) == name
