"""TLS of clients: whose certificates are trusted, which certificate is shown, and what an error of the handshake means.

Source: Python's ssl; OpenSSL's verification errors.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.engine.model.errors import ConfigurationError

_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")


@dataclass(frozen=True, slots=True)
class SettingNames:
    """The settings that errors name: the authority, the client's certificate, the files of both,
    and retries.
    """

    ca: str = "set_tls(ca_file=...)"
    certificate: str = "set_tls(certificate_file=...)"
    files: str = "the files of set_tls"
    retries: str = "set_retries and set_timeout"

    @property
    def remedies(self) -> Mapping[str, str]:
        """What helps, by what is wrong."""
        return {
            "authority": f"Name the CA that has signed it with {self.ca}",
            "name": "Name it in the URL as its certificate does, or give the server a certificate "
            "with this name",
            "no tls": "Correct the port or the scheme of the URL",
            "own": f"If it asks for a certificate, name one with {self.certificate}",
        }


REMEDIES: Final = SettingNames().remedies
"""Those of `set_tls`. A client that is set up in another way has words of its own."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files, where a client runs. None: those that this Python trusts, and no certificate of its own."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    names: SettingNames = SettingNames()

    def context(self, where: str) -> ssl.SSLContext:
        """What verifies the server's certificate and name. Raises: ConfigurationError: a file cannot be read."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise ConfigurationError(
                f"{where}: {self.names.files} cannot be used here: {error}. ca_file is "
                f"{self.ca_file!r}, certificate_file {self.certificate_file!r}, key_file "
                f"{self.key_file!r}: PEM files that the driver and all executors can read."
            ) from error
        return context


def tls_refusal(error: BaseException | None, remedies: Mapping[str, str] = REMEDIES) -> str | None:
    """What is wrong with the other side's TLS, and what helps; None: the error is not about that.

    Such an error comes again with each try.
    """
    for one in _chain(error):
        if isinstance(one, ssl.SSLCertVerificationError):
            if "mismatch" in one.verify_message or "not valid for" in one.verify_message:
                reason = one.verify_message.rstrip(".")
                return f"its certificate is for another name: {reason}. {remedies['name']}"
            return f"its certificate is not trusted: {one.verify_message}. {remedies['authority']}"
        if isinstance(one, ssl.SSLError):
            reason = str(one.reason or "")
            if any(text in reason for text in _NO_TLS):
                return f"it does not speak TLS on this port. {remedies['no tls']}"
            if "ALERT" in reason:
                return f"it refuses the handshake ({reason}). {remedies['own']}"
    return None


def tls_doubt(error: BaseException | None) -> str | None:
    """What may be wrong if a first connection with TLS ends like this; None: nothing of TLS.

    A server without TLS closes the connection or says nothing, and one that wants a certificate may close it, too. So do servers that
    are killed: later, such an error says little.
    """
    if refusal := tls_refusal(error):
        return refusal
    for one in _chain(error):
        has_ended = isinstance(
            one, ssl.SSLError | ConnectionResetError | BrokenPipeError | EOFError
        )
        if has_ended or "handshake" in str(one) or type(one).__name__ == "UnexpectedEOF":
            return (
                f"it does not answer as a server with TLS ({type(one).__name__}: {one}). Correct "
                "the port or the scheme of the URL; or, if it asks for a certificate, name one "
                "with set_tls(certificate_file=...)"
            )
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
