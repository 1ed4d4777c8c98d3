"""Which errors of Kafka's client come again with each try, and what helps. Does not know the client's module.

Source: Errors.java (AuthenticationException, AuthorizationException are not retriable); librdkafka's texts of failed
handshakes, as it has no codes for their causes.
"""

from __future__ import annotations

from typing import Any, Final

_RIGHTS: Final = frozenset({
    "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
})  # fmt: skip
_LOGIN: Final = frozenset({
    "_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM",
})  # fmt: skip
_PASSING: Final = ("Local: ", "isconnected", "timed out")
"""A broker that ends in the middle of a login has refused nobody."""


def refusal_of(error: Any) -> str | None:
    """What is refused, and what to do, as a part of a sentence. None: the error may pass, or says nothing of refusals.

    `error`: a KafkaError, or anything else.
    """
    if not hasattr(error, "name"):
        return None
    name, text = error.name(), error.str()
    if name in _RIGHTS:
        return f"the brokers do not allow it: {text} ({name}). Give the user the rights for it"
    if name in _LOGIN and not any(one in text for one in _PASSING):
        return f"the broker refuses the login: {_short(text)}. {_HELP[_kind(text)]}"
    if "certificate verify failed" in text:
        return (
            f"the broker's certificate is not accepted: {_short(text)}. Name the authority that "
            "has signed it with ssl.ca.location, and the brokers as their certificates do"
        )
    if "SSL alert" in text or "sslv3 alert" in text or "tlsv1 alert" in text:
        return (
            f"the broker refuses the TLS handshake: {_short(text)}. If it asks for a certificate, "
            "set ssl.certificate.location and ssl.key.location, or ssl.keystore.location"
        )
    return None


_HELP: Final = {
    "mechanism": "Set sasl.mechanism to one that the broker has",
    "password": "Correct user and password (sasl.jaas.config, or sasl.username and sasl.password)",
}


def _kind(text: str) -> str:
    return "mechanism" if "supported mechanisms" in text else "password"


def _short(text: str) -> str:
    """Without the time that it took, which differs from try to try."""
    return text.partition(" (after ")[0].removesuffix(".")
