"""Which requests a listener of HTTP takes at all: those that call it by its name, of its own pages or of no page.

Any web page reaches a loopback address through its reader's browser, and may give its own name that address (DNS rebinding). The checks
are those that browsers make possible. Source: Fetch Metadata, RFC 6454 (Origin).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_OWN_PAGES: Final = (None, "same-origin", "none")


def refusal_of_page(
    headers: Mapping[str, str], names: Collection[str], remedy: str, *, changes: bool
) -> str | None:
    """Return why a request must not be answered; None: it may be.

    `names`: of the listener. `remedy`: what to do if it has another name, too. `changes`: whether the request changes something.
    """
    host = headers.get("host", "")
    if name_of(host) not in names:
        return (
            f"This server is not called {host!r}. Call it by one of {', '.join(sorted(names))}, "
            f"or {remedy}."
        )
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        return f"Pages of {origin!r} may not ask this server."
    if changes and headers.get("sec-fetch-site") not in _OWN_PAGES:
        return "Only pages of this server may change something here."
    return None


def name_of(host: str) -> str:
    """Return the name in a Host header, without the port, in lower case. One that is not well-formed is nobody's name."""
    if host.startswith("["):
        name, _, rest = host.removeprefix("[").partition("]")
        return name.lower() if not rest or rest.startswith(":") else host.lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()
