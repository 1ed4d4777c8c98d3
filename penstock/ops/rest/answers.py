"""What a request asks for and what it is answered: plain values, so that handlers know no server.

Source: Flink ErrorResponseBody, MessageParameters (docs: REST API).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

JSON: Final = "application/json; charset=UTF-8"
TEXT: Final = "text/plain; charset=UTF-8"
_HEX: Final = re.compile(r"[0-9a-fA-F]{32}")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
"""As many digits as Flink's numbers have."""


class RestError(Exception):
    """A request that is answered with an error in Flink's form. `texts`: the first one is the message."""

    def __init__(self, status: int, *texts: str) -> None:
        super().__init__(*texts)
        self.status = status
        self.texts = texts


def bad_parameter(kind: str, name: str, value: str) -> RestError:
    """Return the error for a parameter that cannot be read. `kind`: `path` or `query`."""
    return RestError(
        400,
        "Bad request, could not parse parameters: Cannot resolve "
        f'{kind} parameter ({name}) from value "{value}".',
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a request.

    `body`: JSON data, or a file of type `media`: its bytes, or an iterator of them that may block. `headers`: further ones.
    """

    body: Any = field(default_factory=dict)
    status: int = 200
    media: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request. `path`, `query`: its parameters by name. `body`: JSON data; {} if there is none. `span`: its Range header.

    `data`, `media`: the body as it came and its media type, for a route that takes no JSON. `is_stranger`: a request that changes
    something comes from another user, without the token: `penstock.rest.token` lets him.
    """

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any] = field(default_factory=dict)
    span: str = ""
    data: bytes = b""
    media: str = ""
    is_stranger: bool = False

    def hex_id(self, name: str) -> str:
        """Return a parameter of the path that is an id. Raises RestError: it is no id."""
        value = self.path[name]
        if _HEX.fullmatch(value) is None:
            raise bad_parameter("path", name, value)
        return value.lower()

    def number(self, name: str) -> int:
        """Return a parameter of the path that is a number, 0 or more. Raises RestError."""
        value = self.path[name]
        if _NUMBER.fullmatch(value) is None:
            raise bad_parameter("path", name, value)
        return int(value)

    def query_number(self, name: str, default: int) -> int:
        """Return a parameter of the query that is a number. Raises RestError."""
        value = self.query.get(name)
        if value is None or not value:
            return default
        if _NUMBER.fullmatch(value.removeprefix("-")) is None:
            raise bad_parameter("query", name, value)
        return int(value)

    def parts(self, name: str) -> list[str]:
        """Return the parts of a parameter of the query, between commas; [] if there is none."""
        return [one.strip() for one in (self.query.get(name) or "").split(",") if one.strip()]

    def one_of(self, name: str, known: Collection[str], default: str) -> str:
        """Return a parameter of the query that has one of these values. Raises RestError."""
        value = self.query.get(name) or default
        if value not in known:
            raise RestError(400, f"{name} is {value!r}, expected one of {', '.join(known)}.")
        return value

    def text(self, name: str) -> str | None:
        """Return a text of the body; None: it is absent or null. Raises RestError: it is no text."""
        value = self.body.get(name)
        if value is not None and not isinstance(value, str):
            raise RestError(400, f"Request did not match the expected format: '{name}' is no text.")
        return value

    def flag(self, name: str) -> bool:
        """Return a boolean of the body; absent is False. Raises RestError."""
        value = self.body.get(name)
        if value is not None and not isinstance(value, bool):
            raise RestError(
                400,
                f"Request did not match the expected format: '{name}' is neither true nor false.",
            )
        return bool(value)
