"""What builders of clients with TLS share."""

from __future__ import annotations

from typing import Self

from penstock.connectors.api.messaging.builder import CompleteBuilder
from penstock.connectors.clients.tls import TlsFiles
from penstock.engine.model.errors import ConfigurationError


class TlsBuilder(CompleteBuilder):
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
                f"{self.name}.set_tls: key_file is the key of certificate_file, which is missing."
            )
        return self._with(tls=TlsFiles(ca_file, certificate_file, key_file))
