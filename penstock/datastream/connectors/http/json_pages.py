"""Pages of JSON: the records of a page as the bytes that the server has sent, and the next cursor.

Records are cut out, not written anew: a decimal keeps its digits. Source: RFC 8259, 2 (white space and structure).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DECODE: Final = json.JSONDecoder().raw_decode


class _Value(NamedTuple):
    """A value, and where it begins and ends in the text."""

    value: Any
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class JsonPage:
    """`cursor`: None: the page has none."""

    records: list[bytes]
    cursor: Any


def json_page(body: bytes, records: str | None, cursor: str | None) -> JsonPage:
    """`records`: the field with the list of records; None: the page is the list. `cursor`: the field with the next cursor.

    Raises: ValueError, TypeError: the page has another shape.
    """
    text = body.decode(json.detect_encoding(body))
    whole: Any = json.loads(text)
    if records is not None and not (isinstance(whole, dict) and records in whole):
        got = f"the fields {sorted(whole)}" if isinstance(whole, dict) else type(whole).__name__
        raise ValueError(f"set_json_pages expects an object with the list {records!r}, got {got}")
    found = whole if records is None else whole[records]
    if not isinstance(found, list):
        raise TypeError(f"expected a list of records, got {type(found).__name__}")
    if cursor is not None and not isinstance(whole, dict):
        raise ValueError(f"set_json_pages expects an object with the cursor {cursor!r}, got a list")
    begin = _behind_space(text, 0)
    if records is not None:
        # A name that is there twice has the value of the last one.
        begin = [one.begin for name, one in _fields(text, begin) if name == records][-1]
    rows = [text[one.begin : one.end].encode() for one in _elements(text, begin)]
    return JsonPage(rows, None if cursor is None else whole.get(cursor))


def _elements(text: str, place: int) -> Iterator[_Value]:
    """Of the list that begins here. The text is known to be JSON."""
    place = _behind_space(text, place + 1)
    while text[place] != "]":
        found = _value(text, place)
        yield found
        place = _behind_space(text, found.end)
        if text[place] == ",":
            place = _behind_space(text, place + 1)


def _fields(text: str, place: int) -> Iterator[tuple[str, _Value]]:
    """Of the object that begins here."""
    place = _behind_space(text, place + 1)
    while text[place] != "}":
        name = _value(text, place)
        colon = _behind_space(text, name.end)
        found = _value(text, _behind_space(text, colon + 1))
        yield name.value, found
        place = _behind_space(text, found.end)
        if text[place] == ",":
            place = _behind_space(text, place + 1)


def _value(text: str, place: int) -> _Value:
    value, end = _DECODE(text, place)
    return _Value(value, place, end)


def _behind_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return place if found is None else found.end()
