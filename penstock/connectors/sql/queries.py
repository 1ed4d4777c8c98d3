"""Queries of users, made fit to stand in a FROM clause. Does not parse SQL: it only tells texts and comments from the rest."""

from __future__ import annotations

import re
from typing import Final

_PARTS: Final = re.compile(
    r"""(?P<kept>'(?:[^']|'')*'|"[^"]*"|`[^`]*`|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)"""
    r"""|(?P<passed>--[^\n]*|/\*.*?\*/|\s+)|(?P<end>;)|.""",
    re.DOTALL,
)


def without_end(query: str) -> str:
    """The query without semicolons that only comments and blanks follow."""
    ends: list[int] = []
    for part in _PARTS.finditer(query):
        if part["end"]:
            ends.append(part.start())
        elif not part["passed"]:
            ends = []
    for end in reversed(ends):
        query = query[:end] + query[end + 1 :]
    return query
