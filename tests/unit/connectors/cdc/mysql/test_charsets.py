"""Texts and members of the binlog as the client tells them, and as they are."""

from types import SimpleNamespace

import pytest

from penstock.common import Types
from penstock.connectors.cdc.mysql.columns import correct, encoding_of, members_of
from penstock.connectors.cdc.tables import Column, TableId, TableShape
from penstock.engine.model.errors import RefusedForGood


@pytest.mark.parametrize(
    ("charset", "text", "data"),
    [
        ("utf16", "ü", b"\x00\xfc"),
        ("ucs2", "ü", b"\x00\xfc"),
        ("utf16le", "ü", b"\xfc\x00"),
        ("utf32", "ü", b"\x00\x00\x00\xfc"),
        ("latin1", "€", b"\x80"),
        ("utf8mb4", "ü", b"\xc3\xbc"),
        ("cp1251", "ж", b"\xe6"),
        ("latin2", "ł", b"\xb3"),
        ("greek", "α", b"\xe1"),
    ],
)
def test_a_character_set_has_pythons_name(charset, text, data):
    encoding = encoding_of(charset)
    assert data.decode(encoding) == text
    assert encoding_of(encoding) == encoding


def test_a_character_set_that_python_does_not_know():
    assert encoding_of("swe7") is None


@pytest.mark.parametrize(
    ("declared", "told", "expected"),
    [
        ("enum('ä','b')", ["", "b"], ["ä", "b"]),
        ("enum('it''s','')", ["it's", ""], ["it's", ""]),
        ("enum('a','b')", ["b", "a"], ["b", "a"]),  # changed since, and told in UTF-8
        ("enum('a')", ["a", "ü"], ["a", "ü"]),
        ("enum('ä')", ["", ""], None),
        ("enum('ä','b')", ["", "c"], None),
    ],
)
def test_members_that_the_client_does_not_tell_are_the_declared_ones(declared, told, expected):
    shape = TableShape(TableId("shop", "t"), (Column("e", "enum", declared, Types.STRING()),), ())
    column = SimpleNamespace(
        name="e", character_set_name=None, enum_values=["", *told], set_values=None
    )
    if expected is None:
        with pytest.raises(RefusedForGood, match=r"'e' of shop\.t has other members now"):
            correct([column], shape, "here")
        return
    for _ in range(2):
        correct([column], shape, "here")
        assert column.enum_values == ["", *expected]


def test_members_of_a_declaration():
    assert members_of("set('a','it''s','x,y')") == ["a", "it's", "x,y"]
