"""What the builders of HTTP's source and sink share."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from penstock.common.time import Duration
from penstock.datastream.clients.http import PLAIN, is_plain
from penstock.datastream.connectors.messaging.tls import TlsBuilder
from penstock.model.errors import ConfigurationError


class HttpBuilder(TlsBuilder):
    """What the builders of source and sink share. `settings`: a dataclass with `headers`, `limits` and `tls`."""

    def set_header(self, name: str, value: str) -> Self:
        """Set a header of each request. Values are shown nowhere."""
        if not all(isinstance(one, str) and one.isprintable() for one in (name, value)):
            raise ConfigurationError(
                f"{self.name}.set_header: name and value are printable text on one line; the name "
                f"is {name!r:.100}."
            )
        return self._with(headers={**self._settings.headers, name: value})

    def set_bearer_token(self, token: str) -> Self:
        """Set the token of the header Authorization."""
        return self.set_header("Authorization", f"Bearer {token}")

    def set_timeout(self, timeout: Duration) -> Self:
        """Set how long one try may take, from the connection to the last byte; 30 s by default."""
        timeout_s = timeout.to_millis() / 1000
        if timeout_s <= 0:
            raise ConfigurationError(f"{self.name}.set_timeout: expected 1 ms or more.")
        return self._with(limits=replace(self._settings.limits, timeout_s=timeout_s))

    def set_retries(self, retries: int) -> Self:
        """Set how often a request is tried again before the task fails; 8 times by default.

        Delays grow from 0.25 s to 30 s, half of it by chance. `Retry-After` of the server wins, up to 30 s.
        """
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise ConfigurationError(
                f"{self.name}.set_retries: expected 0 or more, got {retries!r}."
            )
        return self._with(limits=replace(self._settings.limits, retries=retries))

    def _check_tls(self, url: str) -> None:
        """Raises: ConfigurationError: there are files of set_tls, and this URL is without TLS."""
        if self._settings.tls is not None and is_plain(url):
            raise ConfigurationError(f"{self.name}.set_tls: {PLAIN}")
