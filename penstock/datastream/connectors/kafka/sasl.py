"""A client's side of SASL PLAIN and SCRAM: what it says, from what it hears. Does no I/O.

Source: RFC 4616, RFC 5802, RFC 7677.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator
from typing import Final, TypeAlias

from penstock.model.errors import ConfigurationError, RefusedForGood

Talk: TypeAlias = Generator[bytes, bytes, None]
"""Yields what to say, and is sent the answer."""

_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def talk(mechanism: str, user: str, password: str) -> Talk:
    """Raises: ConfigurationError: another mechanism. RefusedForGood: the broker does not know the password itself."""
    if mechanism == "PLAIN":
        return _plain(user, password)
    if mechanism in _HASHES:
        return _scram(_HASHES[mechanism], user, password, secrets.token_urlsafe(24))
    raise ConfigurationError(
        f"sasl.mechanism {mechanism!r} is not known here; expected PLAIN, {' or '.join(_HASHES)}."
    )


def _plain(user: str, password: str) -> Talk:
    yield f"\0{user}\0{password}".encode()


def _scram(name_of_hash: str, user: str, password: str, nonce: str) -> Talk:
    shown = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={shown},r={nonce}"
    answer = (yield f"n,,{first}".encode()).decode()
    fields = dict(one.split("=", 1) for one in answer.split(","))
    if not fields.get("r", "").startswith(nonce):
        raise RefusedForGood("the broker answers with another nonce than it was given")
    salt, rounds = base64.b64decode(fields["s"]), int(fields["i"])
    salted = hashlib.pbkdf2_hmac(name_of_hash, password.encode(), salt, rounds)
    final = f"c=biws,r={fields['r']}"
    said = f"{first},{answer},{final}".encode()
    key = hmac.digest(salted, b"Client Key", name_of_hash)
    signature = hmac.digest(hashlib.new(name_of_hash, key).digest(), said, name_of_hash)
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    verified = yield f"{final},p={base64.b64encode(proof).decode()}".encode()
    server_key = hmac.digest(salted, b"Server Key", name_of_hash)
    expected = b"v=" + base64.b64encode(hmac.digest(server_key, said, name_of_hash))
    if not hmac.compare_digest(verified, expected):
        raise RefusedForGood("the broker does not know the password that it asks for")
