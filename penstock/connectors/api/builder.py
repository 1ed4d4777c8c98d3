"""What the builders of sources and sinks share: each setter sets one setting and checks it.

Source: Flink KafkaSourceBuilder, KafkaSinkBuilder, PulsarSourceBuilder, PulsarSinkBuilder.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from penstock.connectors.api.base import DeliveryGuarantee
from penstock.connectors.clients.tls import TlsFiles
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.time import millis_of

Value = TypeVar("Value")
MISSING: Final[Any] = None
"""The default of a setting that has to be set: `_complete` sees that it is, so who gets the settings need not look."""

_STAGED: Final = (DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.EXACTLY_ONCE)


class SettingsBuilder(ABC):
    """Collects settings in a frozen dataclass. `name`: begins errors. `begin`: makes the settings of a builder whose setters were not
    called. `always`: the fields that source and sink need, and who sets each.
    """

    name: ClassVar[str] = ""
    begin: ClassVar[Any] = None
    always: ClassVar[Mapping[str, str]] = {}

    def __init__(self, settings: Any = None) -> None:
        self.settings = type(self).begin() if settings is None else settings

    @abstractmethod
    def build(self) -> object:
        """Returns the source or sink. Raises: ConfigurationError."""

    def _with(self, **changes: Any) -> Self:
        self.settings = replace(self.settings, **changes)
        return self

    def _call(self, setter: str) -> str:
        return f"{self.name}.{setter}" if self.name else setter

    def _with_a(self, kind: type, setter: str, **changes: Any) -> Self:
        """Raises: ConfigurationError: the first value is of another kind."""
        checked_kind(self._call(setter), next(iter(changes.values())), kind)
        return self._with(**changes)

    def _with_number(
        self, setter: str, least: int, most: int | None = None, **changes: Any
    ) -> Self:
        """Raises: ConfigurationError: the first value is no whole number from `least` to `most`."""
        name, value = next(iter(changes.items()))
        number = checked_number(self._call(setter), value, least, most)
        return self._with(**{**changes, name: number})

    def _with_schema(self, kind: type, setter: str, schema: object, **more: Any) -> Self:
        """Sets `schema`, and more. Raises: TypeError: the schema is of another kind."""
        return self._with(schema=checked_schema(self._call(setter), schema, kind), **more)

    def _with_guarantee(self, guarantee: object) -> Self:
        """Raises: ConfigurationError: it is neither AT_LEAST_ONCE nor EXACTLY_ONCE."""
        if guarantee not in _STAGED:
            raise ConfigurationError(
                f"{self._call('set_delivery_guarantee')}: expected DeliveryGuarantee.AT_LEAST_ONCE "
                f"or EXACTLY_ONCE, got {guarantee!r}."
            )
        return self._with(guarantee=guarantee)

    def _complete(self, **calls: str) -> Any:
        """The settings. `calls`: who sets each further field. Raises ConfigurationError: one is missing."""
        for name, call in {**self.always, **calls}.items():
            if not getattr(self.settings, name):
                raise ConfigurationError(f"{self.name}: {call} is missing before build().")
        return self.settings


class TlsBuilder(SettingsBuilder):
    """What builders of clients with TLS share. `settings`: a dataclass with `tls`."""

    def set_tls(
        self,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
    ) -> Self:
        """Set the PEM files of TLS: paths that the driver and all executors can read.

        Args:
            ca_file: certificates that are trusted, instead of those that Python trusts.
            certificate_file: the client's own certificate, for servers that ask for one.
            key_file: its private key; by default it is in `certificate_file`.
        """
        if key_file is not None and certificate_file is None:
            raise ConfigurationError(
                f"{self._call('set_tls')}: key_file is the key of certificate_file, which is "
                "missing."
            )
        return self._with(tls=TlsFiles(ca_file, certificate_file, key_file))


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the servers of a source or sink are, and who logs in. As text it shows neither user nor password.

    `ports`: those that a URL leaves out, by its scheme. `secure`: the scheme with TLS.
    """

    urls: tuple[str, ...] = field(default=(), repr=False)
    login: tuple[str | None, str | None] = field(default=(None, None), repr=False)
    tls: TlsFiles | None = None

    ports: ClassVar[Mapping[str, int]] = {}
    secure: ClassVar[str] = ""
    takes_path: ClassVar[bool] = False

    def __str__(self) -> str:
        return ",".join(map(self._shown, map(urlsplit, self.urls)))

    @property
    def credentials(self) -> tuple[str | None, str | None]:
        """User and password: those of `login`, or of the first URL."""
        parts = urlsplit(self.urls[0])
        if self.login != (None, None) or parts.username is None:
            return self.login
        return unquote(parts.username), unquote(parts.password or "")

    @property
    def has_tls(self) -> bool:
        return any(url.startswith(f"{self.secure}:") for url in self.urls)

    def _shown(self, parts: SplitResult) -> str:
        path = parts.path if self.takes_path else ""
        if not parts.hostname:
            return f"{parts.scheme}://{path}"
        return f"{parts.scheme}://{parts.hostname}:{parts.port or self.ports[parts.scheme]}{path}"


class ServerBuilder(TlsBuilder):
    """What builders for servers with a URL share. `begin`: a class of `ServerSettings`. `form`: of its URLs, for errors."""

    form: ClassVar[str]

    def set_credentials(self, username: str | None, password: str | None) -> Self:
        """Set user and password, instead of writing them into the URL."""
        return self._with(login=(username, password))

    def _with_urls(self, *urls: str) -> Self:
        """Raises: ConfigurationError, which does not show the password: one is no URL of `form`."""
        where, kind = self._call("set_url"), self.begin
        for url in urls:
            parts = parts_of_url(where, url, self.form)
            is_local = parts.scheme == "unix"
            is_right = parts.scheme in kind.ports and parts.port != 0
            is_there = bool(parts.path if is_local else parts.hostname)
            if not (is_right and is_there) or (parts.path.strip("/") and not kind.takes_path):
                raise ConfigurationError(
                    f"{where}: got the scheme {parts.scheme!r}, the host {parts.hostname!r} and "
                    f"the port {parts.port}, expected {self.form}."
                )
        return self._with(urls=urls)

    def _complete(self, **calls: str) -> Any:
        """The settings. Raises: ConfigurationError: one is missing, or there are files of TLS for a URL without."""
        settings = super()._complete(**calls)
        if settings.tls is not None and not settings.has_tls:
            plain = next(iter(settings.ports))
            raise ConfigurationError(
                f"{self.name}.set_tls: the URL is without TLS. Write {settings.secure}:// instead "
                f"of {plain}://."
            )
        return settings


class MessageSourceBuilder(SettingsBuilder):
    """Builds a source. `settings` has a field `subscription`, which says what is read."""

    def _subscribe(self, setter: str, subscription: object, setters: str) -> Self:
        """Sets what is read. `setters`: the setters of which only one may be called, once.

        Raises: ConfigurationError: this is the second call.
        """
        if self.settings.subscription is not None:
            raise ConfigurationError(
                f"{setter}: what to read is set already: {self.settings.subscription}. Call only "
                f"one of {setters}, and only once."
            )
        return self._with(subscription=subscription)


def checked_kind(setter: str, value: object, kind: type[Value]) -> Value:
    """The value. Raises: ConfigurationError: it is of another kind."""
    if not isinstance(value, kind):
        raise ConfigurationError(f"{setter}: expected a {kind.__name__}, got {value!r}.")
    return value


def checked_number(setter: str, number: Any, least: int, most: int | None = None) -> int:
    """The number. Raises: ConfigurationError: it is none, below `least`, or above `most`."""
    is_whole = isinstance(number, int) and not isinstance(number, bool)
    if is_whole and least <= number <= (number if most is None else most):
        return int(number)
    up_to = "or more" if most is None else f"to {most}"
    raise ConfigurationError(f"{setter}: expected {least} {up_to}, got {number!r}.")


def checked_ms(setter: str, duration: Any) -> int:
    """The duration in ms. Raises: ConfigurationError: it is below 1 ms."""
    time_ms = millis_of(duration)
    if time_ms < 1:
        raise ConfigurationError(f"{setter}: expected 1 ms or more, got {time_ms} ms.")
    return time_ms


def checked_schema(where: str, schema: object, kind: type[Any]) -> Any:
    """The schema. Raises: TypeError: it is of another kind."""
    if not isinstance(schema, kind):
        raise TypeError(f"{where}: expected a {kind.__name__}, got {type(schema).__name__}.")
    return schema


def parts_of_url(setter: str, url: object, form: str) -> SplitResult:
    """The parts. `form`: what is expected. Raises: ConfigurationError, which does not show the password."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        _ = parts.port
    except ValueError:  # its text may have a piece of the password
        raise ConfigurationError(
            f"{setter}: the URL cannot be parsed. Expected {form}. Check the port, and "
            "write /, ?, # and @ in a password as %2F, %3F, %23 and %40, or use set_credentials."
        ) from None
    return parts


def checked_topics(names: str | Iterable[str]) -> tuple[str, ...]:
    """The arguments of set_topics: one name, or several. Raises: ConfigurationError."""
    found = (names,) if isinstance(names, str) else tuple(names)
    if not found or not all(isinstance(one, str) and one for one in found):
        raise ConfigurationError(f"set_topics: expected names of topics, got {names!r}.")
    return found


def checked_topic_pattern(pattern: str) -> str:
    """The argument of set_topic_pattern. Raises: ConfigurationError: it is not a regular expression."""
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ConfigurationError(
            f"set_topic_pattern: {pattern!r} is not a regular expression: {error}."
        ) from error
    return pattern
