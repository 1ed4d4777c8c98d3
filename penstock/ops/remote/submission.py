"""What a client sends to a session: a job that is ready to run, and the versions that have to be the same at both ends.

Nothing is unpickled before the versions are compared, and the sender has been authenticated.
"""

from __future__ import annotations

import pickle
import platform
from collections.abc import Mapping
from dataclasses import dataclass

from penstock import __version__
from penstock.engine.hosting.jobmanager.ha.packed_job import (
    ModulesOpener,
    SubmittedJob,
    pack,
    unpack_job,
)
from penstock.engine.hosting.shipping.pickling import loads_records
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.ids import VertexId


@dataclass(frozen=True, slots=True)
class Submission:
    """`speakers` None: a streaming job. Else a BATCH job, of which these vertices have rows or commits for the driver. `reads_rows`: the
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
