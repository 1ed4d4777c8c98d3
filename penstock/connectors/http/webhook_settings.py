"""What a WebhookSource is set to, and a request that it takes."""

from __future__ import annotations

import base64
import hmac
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.connectors.clients.tls import TlsFiles
from penstock.engine.model.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """A request that has come. `path`: with its query. `headers`: names in lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Signature:
    """The HMAC of a body, in a header. `encoding`: hex or base64."""

    secret: bytes = field(repr=False)
    header: str
    digest: str
    encoding: str
    prefix: str

    def fits(self, headers: Mapping[str, str], body: bytes) -> bool:
        made = hmac.new(self.secret, body, self.digest)
        text = (
            made.hexdigest() if self.encoding == "hex" else base64.b64encode(made.digest()).decode()
        )
        return _same(headers.get(self.header.lower(), ""), self.prefix + text)


@dataclass(frozen=True, slots=True)
class ListenSettings:
    """As the builder sets them. As text neither token nor secret is shown."""

    host: str = "127.0.0.1"
    port: int = 0
    path: str = "/"
    token: str | None = field(default=None, repr=False)
    signature: Signature | None = None
    tls: TlsFiles | None = None
    refuses_malformed: bool = True
    waits_for_checkpoint: bool = False
    answer_timeout_s: float = 60.0
    queue_records: int = 10_000
    queue_bytes: int = 64 << 20
    body_bytes: int = 1 << 20
    connections: int = 200

    def __str__(self) -> str:
        scheme = "http" if self.tls is None else "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}{self.path}"

    @property
    def is_open(self) -> bool:
        """Whether anybody may send."""
        return self.token is None and self.signature is None

    def has_token(self, authorization: str) -> bool:
        """Whether this header has the token that is asked for."""
        return self.token is None or _same(authorization, f"Bearer {self.token}")

    def is_signed(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether the body has the signature that is asked for."""
        return self.signature is None or self.signature.fits(headers, body)


def server_context(tls: TlsFiles | None, where: str) -> ssl.SSLContext | None:
    """None: no TLS. Raises: ConfigurationError: a file cannot be read."""
    if tls is None:
        return None
    assert tls.certificate_file is not None
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tls.ca_file)
        context.load_cert_chain(tls.certificate_file, tls.key_file)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise ConfigurationError(
            f"{where}: the files of set_tls cannot be used here: {error}. certificate_file is "
            f"{tls.certificate_file!r}, key_file {tls.key_file!r}, client_ca_file "
            f"{tls.ca_file!r}: PEM files that the driver and all executors can read."
        ) from error
    if tls.ca_file is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _same(one: str, other: str) -> bool:
    """Compare in a time that does not depend on where the texts differ."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())
