"""A client of one session: asks what it is, submits, and finds its token again after it was started anew.

Source: Flink RestClusterClient.

What a client sends to a session: a job that is ready to run, and the versions that have to be the same at both ends.

Nothing is unpickled before the versions are compared, and the sender has been authenticated.
"""

from __future__ import annotations

import pickle
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock import __version__
from penstock.engine.hosting.jobmanager.ha.packed_job import (
    ModulesOpener,
    SubmittedJob,
    pack,
    unpack_job,
)
from penstock.engine.hosting.shipping.pickling import loads_records
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.ids import VertexId
from penstock.engine.model.options.rest import ClientOptions, RestOptions
from penstock.ops.remote.client import OperationFailed, RemoteError, RestClient, pauses
from penstock.ops.rest.address_book import drivers
from penstock.ops.rest.session_place import MEDIA


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as it is sent to a session.

    `speakers` None: a streaming job. Else a BATCH job, of which these vertices have rows or commits for the driver. `reads_rows`: the
    client takes collected rows.
    """

    job: SubmittedJob
    speakers: frozenset[VertexId] | None = None
    reads_rows: bool = False


def packed(submission: Submission) -> bytes:
    """Raises what pickling raises."""
    return pickle.dumps(
        (pack(submission.job), submission.speakers, submission.reads_rows), protocol=5
    )


def opened(data: bytes, open_modules: ModulesOpener) -> Submission:
    """Return what `packed` has made. After authentication only. Raises whatever unpickling raises."""
    job, speakers, reads_rows = loads_records(data)
    return Submission(unpack_job(job, open_modules), speakers, reads_rows)


def own_versions() -> dict[str, str]:
    """Return the versions of Penstock, Python (major and minor), and PySpark of this process."""
    import pyspark

    return {
        "penstock": __version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "pyspark": pyspark.__version__,
    }


def check_versions(client: Mapping[str, str], session: Mapping[str, str]) -> None:
    """Raises ConfigurationError: a job of this client cannot be opened by its session. Names all versions that differ."""
    titles = {"penstock": "Penstock", "python": "Python", "pyspark": "PySpark"}
    differing = [
        f"{titles[name]} {client.get(name) or 'unknown'} at the client and {session[name]} in the "
        "session"
        for name in titles
        if _compared(name, client.get(name, "")) != _compared(name, session[name])
    ]
    if differing:
        raise ConfigurationError(
            f"the session cannot take this job: {', '.join(differing)}. Run the client with the "
            "versions of the session."
        )


def _compared(name: str, version: str) -> str:
    """Pickles of PySpark's cloudpickle are the same within a minor version."""
    return ".".join(version.split(".")[:2]) if name == "pyspark" else version


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
    """A client of one session. `rest`: asks the session's REST server."""

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
        """Return what the session says of itself. Raises ConfigurationError: jobs of this process cannot be submitted there."""
        answer: dict[str, Any] = self.rest.get("/session")
        if not answer["session"]:
            raise ConfigurationError(
                f"{self.rest.address} is the driver of a program and takes no jobs. Start a "
                "session with `penstock session`, and name its address."
            )
        if not answer["ready"]:
            raise RemoteError(
                f"the session at {self.rest.address} does not lead: another one does, or it is "
                "still recovering jobs. Submit to the leading session.",
                503,
            )
        check_versions(own_versions(), answer["versions"])
        return answer

    def submit(self, data: bytes) -> str:
        """Send a job, and wait until it is started. Returns: its id. Raises RemoteError with the session's words."""
        started = self.rest.send("/session/jobs", data, MEDIA, **own_versions())["request-id"]
        try:
            answer = self.rest.result(f"/session/jobs/{started}", pauses(0.02, 1.0)) or {}
        except OperationFailed as error:
            raise RemoteError(
                f"the session at {self.rest.address} did not start the job:\n{error}"
            ) from None
        return str(answer["job-id"])
