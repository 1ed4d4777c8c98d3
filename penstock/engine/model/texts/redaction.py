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
    "accesskey", "account.key", "auth-params", "service-key",
    "basic-auth", "basic.auth", "jaas.config", "http-headers",
    "private-key", "private.key", "privatekey", "keytab", "sasl.", "passphrase", "signature",
)  # fmt: skip
_IN_ADDRESS: Final = re.compile(r"(?<=://)[^/?#\s@]+@")
_IN_QUERY: Final = re.compile(
    r"(?i)([?&;](?:password|passwd|pwd|secret|token|access_key|apikey|api_key|sig|signature)=)"
    r"[^&;\s'\"]+"
)
_ENDS: Final = r"(?:password|passwd|pwd|passphrase|secret|access[_-]?key|api[_-]?key|token)"
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
    return key not in _SHOWN and any(part in lower for part in _SECRET_PARTS)


def without_credentials(text: str) -> str:
    """Return the text with user names, passwords and tokens hidden in all addresses that it holds, and where their names stand before them."""
    found = _IN_QUERY.sub(rf"\1{HIDDEN}", _IN_ADDRESS.sub(f"{HIDDEN}@", text))
    return _IN_HEADER.sub(rf"\1{HIDDEN}", _AS_VALUE.sub(rf"\1{HIDDEN}", found))


def redacted(values: Mapping[str, object]) -> dict[str, str]:
    """Return the values as texts that may be shown."""
    return {
        key: HIDDEN if is_secret(key) else without_credentials(str(value))
        for key, value in values.items()
    }
