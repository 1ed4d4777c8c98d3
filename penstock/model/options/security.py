"""Options of security: what is encrypted.

Does not know their readers. Source: Flink SecurityOptions.
"""

from typing import Final

from penstock.model.options.option import OptionGroup, flag


class SecurityOptions(OptionGroup, title="Security"):
    """Encryption of the connections between the processes of a job."""

    INTERNAL_SSL: Final = flag(
        "security.ssl.internal.enabled",
        None,
        (
            "Encrypt all connections between the driver and TaskManagers with TLS 1.3. Each job "
            "gets a certificate of its own, which both ends must show. Not set: as Spark's own "
            "connections, that is, on if `spark.network.crypto.enabled` or `spark.ssl.enabled` "
            "is. The driver needs the package `cryptography` (`pip install penstock[tls]`). BATCH "
            "jobs use Spark's connections."
        ),
    )
