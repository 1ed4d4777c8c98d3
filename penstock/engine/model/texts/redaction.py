"""What must not be shown: the values of secret options, and credentials in addresses.

Source: Flink GlobalConfiguration.isSensitive and its HIDDEN_CONTENT; differs: user and password in an address are hidden under any key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from penstock.engine.model.options.rest import RestOptions

HIDDEN: Final = "******"
_SECRET_PARTS: Final = (
    "password", "passwd", "secret", "token", "credential",
    "apikey", "api-key", "api.key", "access-key", "access.key",
    "accesskey", "account.key", "accountkey", "auth-params", "service-key",
    "basic-auth", "basic.auth", "jaas.config", "http-headers",
    "private-key", "private.key", "privatekey", "keytab", "sasl.", "passphrase", "signature",
)  # fmt: skip
_SECRET_ENDS: Final = frozenset({"pwd", "pass", "auth", "pem"})
"""Last parts of keys: `smtp.pass`."""
_IN_ADDRESS: Final = re.compile(r"(?<=://)[^/?#\s@]+@")
_IN_QUERY: Final = re.compile(
    r"(?i)([?&;](?:password|passwd|pwd|secret|token|access_key|apikey|api_key|sig|signature)=)"
    r"[^&;\s'\"]+"
)
_IN_WEBHOOK: Final = re.compile(
    r"(?i)(https?://(?:hooks\.[^\s/'\"]+/|[^\s/'\"]+/(?:api/)?webhooks?\w*/))[^\s'\"<>]+"
)
"""Whoever has the path of a webhook may send to it."""
_WORDS: Final = r"(?:password|passwd|pwd|passphrase|secret)"
_ENDS: Final = rf"(?:{_WORDS}|(?:access|account|api)[_-]?key|token|[._-](?:pass|auth|pem))"
_AFTER_COLON: Final = re.compile(rf"""(?i)({_WORDS}["']?: ?["']?)([^\s"'&;,)]+)""")
"""`password: x`, also of YAML. A token is also what a parser reads: `unexpected token: x`."""
_AS_VALUE: Final = re.compile(rf"""(?i)({_ENDS}(?:=["']?|["']: ?["']))([^\s"'&;,)]+)""")
"""`password=x` of a connection string or a JAAS entry, and `"password": "x"` of JSON or a dict. Only the ends of names are looked for: a
search for whole names takes time with the square of a line's length.
"""
_IN_HEADER: Final = re.compile(
    r"""(?i)(\bauthorization["']?[:=] ?["']?(?:(?:bearer|basic|digest) )?)"""
    r"""(?!(?:bearer|basic|digest)\b)[\w.~+/=-]+"""
)
_SHOWN: Final = frozenset({RestOptions.TOKEN.key})
"""Keys that only sound secret."""


def is_secret(key: str) -> bool:
    """Return whether the value of this option or variable must not be shown."""
    lower = key.lower().replace("_", "-")
    is_named = any(part in lower for part in _SECRET_PARTS)
    return key not in _SHOWN and (is_named or re.split(r"[.-]", lower)[-1] in _SECRET_ENDS)


def without_credentials(text: str) -> str:
    """Return the text with user names, passwords and tokens hidden in all addresses that it holds, and where their names stand before them."""
    text = _IN_ADDRESS.sub(f"{HIDDEN}@", text)
    for pattern in (_IN_QUERY, _IN_WEBHOOK, _AS_VALUE, _AFTER_COLON, _IN_HEADER):
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


def redacted(values: Mapping[str, object]) -> dict[str, str]:
    """Return the values as texts that may be shown."""
    return {
        key: HIDDEN if is_secret(key) else without_credentials(str(value))
        for key, value in values.items()
    }
