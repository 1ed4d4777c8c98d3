"""A client of one session: asks what it is, submits, and finds its token again after it was started anew.

Source: Flink RestClusterClient.
"""

from __future__ import annotations

import time
from typing import Any, Final

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.rest import ClientOptions, RestOptions
from penstock.ops.remote.client import RemoteError, RestClient
from penstock.ops.remote.submission import check_versions, own_versions
from penstock.ops.rest.address_book import drivers
from penstock.ops.rest.session_place import MEDIA

_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 1.0


def session_address(settings: Settings) -> str:
    """Return the address that the options name. Raises ConfigurationError: they name none."""
    host = settings.get(RestOptions.ADDRESS)
    if not host:
        raise ConfigurationError(
            "execution.target is 'remote', but rest.address is not set. Set rest.address and "
            "rest.port to those of a session; `penstock session` starts one and prints them."
        )
    scheme = "https" if settings.get(RestOptions.SSL) else "http"
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}:{settings.get(RestOptions.PORT)}"


class SessionClient:
    """`rest`: asks the session's REST server."""

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigurationError, RemoteError: the address or the certificates cannot be used."""
        address = session_address(settings)
        self._token = settings.get(ClientOptions.TOKEN)
        self.rest = RestClient(address, None, settings.get(ClientOptions.CERTIFICATES))
        self.rows_key: bytes | None = None
        self.find_token()

    def find_token(self) -> None:
        """Look the token and the key of rows up: a session that was started again has another one."""
        at = self.rest.address.replace("//127.0.0.1:", "//localhost:")
        known = next((one for one in drivers() if one.address in {self.rest.address, at}), None)
        self.rest.token = self._token or (None if known is None else known.token)
        self.rows_key = bytes.fromhex(known.rows_key) if known and known.rows_key else None

    def about(self) -> dict[str, Any]:
        """Return what the session tells of itself. Raises ConfigurationError: jobs of this process cannot be submitted there."""
        told: dict[str, Any] = self.rest.get("/session")
        if not told["session"]:
            raise ConfigurationError(
                f"{self.rest.address} is the driver of a program and takes no jobs. Start a "
                "session with `penstock session`, and name its address."
            )
        if not told["ready"]:
            raise RemoteError(
                f"the session at {self.rest.address} does not lead: another one does, or it is "
                "still recovering jobs. Submit to the leading session.",
                503,
            )
        check_versions(own_versions(), told["versions"])
        return told

    def submit(self, data: bytes) -> str:
        """Send a job, and wait until it is started. Returns: its id. Raises RemoteError with the session's words."""
        started = self.rest.send("/session/jobs", data, MEDIA, **own_versions())["request-id"]
        pause_s = _FIRST_PAUSE_S
        while True:
            told = self.rest.get(f"/session/jobs/{started}")
            if told["status"]["id"] == "COMPLETED":
                break
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        failure = told["operation"].get("failure-cause")
        if failure:
            raise RemoteError(
                f"the session at {self.rest.address} did not start the job:\n"
                f"{failure['stack-trace']}"
            )
        return str(told["operation"]["job-id"])
