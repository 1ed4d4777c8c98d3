"""What the builders of HTTP's source and sink share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from penstock.common.time import Duration
from penstock.connectors.api.builder import TlsBuilder, checked_ms
from penstock.connectors.clients.http import PLAIN, HttpLimits, is_plain
from penstock.connectors.clients.tls import TlsFiles
from penstock.engine.model.errors import ConfigurationError

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110, 5.6.2."""


def checked_header(where: str, name: object) -> str:
    """The name of a header. Raises: ConfigurationError."""
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise ConfigurationError(
            f"{where}: the name of a header has letters, digits and - only, got {name!r:.100}."
        )
    return name


def is_header_value(value: object) -> bool:
    """Whether a header may have this value: what HTTP carries is Latin-1."""
    return isinstance(value, str) and value.isprintable() and all(ord(one) < 256 for one in value)


@dataclass(frozen=True, slots=True)
class HttpSettings(HttpLimits):
    """What source and sink are set to. As text it shows no headers."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: TlsFiles | None = None


class HttpBuilder(TlsBuilder):
    """What the builders of source and sink share. `begin`: a class of `HttpSettings`."""

    def set_header(self, name: str, value: str) -> Self:
        """Set a header of each request. Values are shown nowhere."""
        checked_header(f"{self.name}.set_header", name)
        if not is_header_value(value):
            raise ConfigurationError(
                f"{self.name}.set_header: the value of {name!r} is to be printable text on one "
                "line, of signs of Latin-1."
            )
        return self._with(headers={**self.settings.headers, name: value})

    def set_bearer_token(self, token: str) -> Self:
        """Set the token of the header Authorization."""
        return self.set_header("Authorization", f"Bearer {token}")

    def set_timeout(self, timeout: Duration) -> Self:
        """Set how long one try may take, from the connection to the last byte; 30 s by default."""
        timeout_s = checked_ms(self._call("set_timeout"), timeout) / 1000
        return self._with(timeout_s=timeout_s)

    def set_retries(self, retries: int) -> Self:
        """Set how often a request is tried again before the task fails; 8 times by default.

        Delays grow from 0.25 s to 30 s, half of it by chance. `Retry-After` of the server wins, up to 30 s.
        """
        return self._with_number("set_retries", 0, retries=retries)

    def _check_tls(self, url: str) -> None:
        """Raises: ConfigurationError: there are files of set_tls, and this URL is without TLS."""
        if self.settings.tls is not None and is_plain(url):
            raise ConfigurationError(f"{self.name}.set_tls: {PLAIN}")
