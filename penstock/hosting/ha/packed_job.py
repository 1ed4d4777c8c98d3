"""A job as it was submitted, and its form as bytes: in the high availability store, and on the way to a session.

Whoever opens the bytes has authenticated them before: opening runs what they say. Source: Flink's stored ExecutionPlan.
"""

from __future__ import annotations

import atexit
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeAlias

from penstock.hosting.coordinators.source_coordinator import CoordinatedVertex
from penstock.hosting.shipping.module_archive import unpack
from penstock.hosting.shipping.pickling import deserialize, loads_records, serialize
from penstock.model.graph.job_graph import JobGraph
from penstock.model.ids import JobId
from penstock.model.program import ProgramSettings


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A job as it was submitted: all that a driver needs to run it, even without its program.

    `program.configuration`: the settings of all layers. `modules`: the user's own modules, as a
    zip.
    """

    graph: JobGraph
    coordinated: tuple[CoordinatedVertex, ...]
    program: ProgramSettings
    modules: bytes


ModulesOpener: TypeAlias = "Callable[[JobId, bytes, bytes], AbstractContextManager[None]]"
"""Called with a job's id, the zip of its modules, and what is going to be unpickled. Within the context the modules are importable."""


def pack(job: SubmittedJob) -> bytes:
    """Raises what pickling raises. Coordinators are pickled apart: unpickling them may need the modules first."""
    plain = pickle.dumps((job.graph, job.program, job.modules), protocol=5)
    return pickle.dumps((plain, serialize(job.coordinated)), protocol=5)


def unpack_job(data: bytes, open_modules: ModulesOpener) -> SubmittedJob:
    """Return the job of bytes that `pack` made. After authentication only. Raises whatever unpickling raises."""
    plain, coordinated = loads_records(data)
    graph, program, modules = loads_records(plain)
    with open_modules(graph.job_id, modules, coordinated):
        return SubmittedJob(graph, deserialize(coordinated), program, modules)


def make_importable(
    _job_id: JobId, archive: bytes, _pickled: bytes
) -> AbstractContextManager[None]:
    """Make a program's own modules importable, for good. Modules that this process can import anyway come first."""
    if archive:
        folder = tempfile.mkdtemp(prefix="penstock-recovered-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        unpack(archive, folder)
        sys.path.append(folder)
    return nullcontext()
