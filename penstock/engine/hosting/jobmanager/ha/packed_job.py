"""A job as it was submitted, and its form as bytes: in the high availability store, and on the way to a session.

Whoever opens the bytes has authenticated them before: opening runs what they say. Source: Flink's stored ExecutionPlan.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.engine.hosting.jobmanager.coordinators.source_coordinator import CoordinatedVertex
from penstock.engine.hosting.os.private_files import OwnFolder
from penstock.engine.hosting.shipping import missing_packages
from penstock.engine.hosting.shipping.module_archive import unpack
from penstock.engine.hosting.shipping.pickling import deserialize, loads_records, serialize
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.ids import JobId
from penstock.engine.model.program import ProgramSettings


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A job as it was submitted: all that a driver needs to run it, even without its program.

    `program.configuration`: the settings of all layers. `modules`: the user's own modules, as a
    zip. `client_timeout_ms`: it is cancelled when the client that collects its rows is silent for so long; None: it outlives its
    client. `classes`: those of the main script that its functions refer to, by which coordinators find the classes of their state.
    """

    graph: JobGraph
    coordinated: tuple[CoordinatedVertex, ...]
    program: ProgramSettings
    modules: bytes
    client_timeout_ms: int | None = None
    classes: tuple[type, ...] = ()


_OWN: Final = OwnFolder("penstock-recovered-")
PYTHON: Final = sys.version_info[:2]

ModulesOpener: TypeAlias = "Callable[[JobId, bytes, bytes], AbstractContextManager[None]]"
"""Called with a job's id, the zip of its modules, and what is going to be unpickled. Within the context the modules are importable."""


def pack(job: SubmittedJob) -> bytes:
    """Raises what pickling raises. Coordinators are pickled apart: unpickling them may need the modules first."""
    plain = pickle.dumps((job.graph, job.program, job.modules), protocol=5)
    coordinated = serialize((job.coordinated, job.classes))
    return pickle.dumps((plain, coordinated, PYTHON, job.client_timeout_ms), protocol=5)


def unpack_job(data: bytes, open_modules: ModulesOpener) -> SubmittedJob:
    """Return the job of bytes that `pack` made. After authentication only.

    Raises: ConfigurationError: another version of Python has packed it. Whatever unpickling raises.
    """
    plain, coordinated, packed_by, timeout_ms = loads_records(data)
    if packed_by != PYTHON:
        raise ConfigurationError(
            f"the job was submitted by Python {_text(packed_by)}, and this is Python "
            f"{_text(PYTHON)}. Its functions are bytecode, which no other version can run. Take "
            f"it over with Python {_text(packed_by)}, or start its program here from its last "
            "savepoint or checkpoint"
        )
    graph, program, modules = loads_records(plain)
    with open_modules(graph.job_id, modules, coordinated):
        places, classes = deserialize(coordinated)
        return SubmittedJob(graph, places, program, modules, timeout_ms, classes)


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def make_importable(
    _job_id: JobId, archive: bytes, _pickled: bytes
) -> AbstractContextManager[None]:
    """Make a program's own modules importable, for good. Modules that this process can import anyway come first."""
    if archive:
        folder = tempfile.mkdtemp(prefix="job-", dir=_OWN.made())
        unpack(archive, folder)
        sys.path.append(folder)
        missing_packages.install([archive])
    return nullcontext()
