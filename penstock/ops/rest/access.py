"""Who may ask: which hosts and pages a request may come from, and who has to show the driver's token.

Any process of a machine reaches a loopback address, and so does any web page through its reader's browser. Source: Flink leaves this
to its network; the checks are those that browsers make possible (Fetch Metadata, Origin), and the kernel's word about the other end.
"""

from __future__ import annotations

import hmac
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.engine.hosting.network.http_access import LOOPBACK_NAMES, refusal_of_page
from penstock.engine.hosting.network.wire.addresses import is_loopback
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.option import refusal
from penstock.engine.model.options.rest import RestOptions
from penstock.ops.rest.answers import RestError

_REFUSED: Final = (
    "This request needs the driver's token: send the header `Authorization: Bearer <token>`. The "
    "user of the driver finds it with `penstock list --show-token`."
)
_NO_STRANGERS: Final = (
    "Only the user of this server, and root, may ask it. With the value 'never' of option "
    f"'{RestOptions.TOKEN.key}' it answers every user of this machine."
)


class TokenRule(StrEnum):
    """Who must show the token: `penstock.rest.token`."""

    OTHERS = "others"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask the server, and how it is called.

    `token`: "" where nobody can show one. `hosts`: the names by which this server may be called. `is_loopback`: only this machine
    reaches it.
    """

    rule: TokenRule
    token: str
    hosts: frozenset[str]
    is_loopback: bool = True

    def check(
        self,
        headers: Mapping[str, str],
        *,
        changes: bool,
        is_own_user: bool,
        runs_code: bool = False,
    ) -> None:
        """Raises RestError: the request must not be answered. `is_own_user`: the kernel says so.

        `runs_code`: what is sent is run as the driver's user, so that `never` counts as `others`.
        """
        self.check_place(headers, changes=changes)
        is_free = self.is_loopback and self.rule is TokenRule.NEVER and not runs_code
        if not is_free and not self.knows(headers, is_own_user=is_own_user):
            raise RestError(401, _REFUSED if self.token else _NO_STRANGERS)

    def knows(self, headers: Mapping[str, str], *, is_own_user: bool) -> bool:
        """Whether the request shows the token, or needs none because the kernel says that it comes from the driver's user."""
        trusts_kernel = self.is_loopback and self.rule is not TokenRule.ALWAYS
        return self.shows_token(headers) or (trusts_kernel and is_own_user)

    def check_place(self, headers: Mapping[str, str], *, changes: bool = False) -> None:
        """Raises RestError: another server was meant, or a page of another one asks. Enough for what everybody may have."""
        why = refusal_of_page(headers, self.hosts, "set rest.address", changes=changes)
        if why is not None:
            raise RestError(403, why)

    def shows_token(self, headers: Mapping[str, str]) -> bool:
        """Whether the request has the driver's token. A server without a token has none to show."""
        kind, _, shown = headers.get("authorization", "").partition(" ")
        return (
            bool(self.token)
            and kind.lower() == "bearer"
            and hmac.compare_digest(shown.strip().encode(), self.token.encode())
        )


def access_of(
    rule: str, token: str, bind_address: str, *names: str | None, is_encrypted: bool = False
) -> Access:
    """Return the rules for a server that listens at this address. `token`: "" where it has none.

    Raises ConfigurationError: the rule is unknown, or too weak for an address that other machines reach.
    """
    wanted = rule.lower()
    if wanted not in set(TokenRule):
        raise refusal(RestOptions.TOKEN.key, rule, ", ".join(TokenRule))
    if wanted == TokenRule.ALWAYS and not token:
        raise ConfigurationError(
            f"option '{RestOptions.TOKEN.key}' is '{rule}', but this server has no token. Use "
            f"'{TokenRule.OTHERS}', and it answers its user and root only."
        )
    known = {*LOOPBACK_NAMES, bind_address.lower()}
    known |= {name.lower() for name in names if name}
    is_here = is_loopback(bind_address)
    if not is_here:
        known.add(socket.gethostname().lower())
        if wanted != TokenRule.ALWAYS or not is_encrypted:
            raise ConfigurationError(
                f"option '{RestOptions.BIND_ADDRESS.key}' is '{bind_address}', which other "
                f"machines may reach. Then '{RestOptions.TOKEN.key}' must be 'always', and "
                f"'{RestOptions.SSL.key}' must be true. Set both, or use localhost and an SSH "
                "tunnel."
            )
    return Access(TokenRule(wanted), token, frozenset(known), is_here)
