"""The own modules of submitted jobs in the session's process: one folder for each job, and no module of the wrong job.

Python knows a module by its name alone, and records of its classes are pickled by that name. So two jobs that need different modules
of one name cannot run their sources and sinks in one process: the second one is refused, before anything of it is imported. Modules
that only tasks need are not imported here. Source: Flink has a class loader for each job.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import io
import pickletools
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Final

from penstock.engine.hosting.os.private_files import OwnFolder
from penstock.engine.hosting.reporting.logs.driver import job_of_thread
from penstock.engine.hosting.shipping.missing_packages import MissingPackages, missing_packages
from penstock.engine.hosting.shipping.module_archive import unpack
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.ids import JobId

_OWN: Final = OwnFolder("penstock-session-modules-")


@dataclass(slots=True, eq=False)
class _Space:
    """The modules of one job. `tops`: a digest of the content of each top-level name. `missing`: packages that it imports and does
    not bring. `needed`: those that this process imports.
    """

    job_id: JobId
    folder: str
    tops: Mapping[str, str]
    missing: MissingPackages
    needed: set[str] = field(default_factory=set)
    is_closed: bool = False

    def loaded(self) -> list[str]:
        """Return the names of modules that come from this folder."""
        inside = self.folder + "/"
        return [
            name
            for name, module in list(sys.modules.items())
            if str(getattr(module, "__file__", None) or "").startswith(inside)
        ]


class _Opening(threading.local):
    space: _Space | None = None


class ModuleSpaces(MetaPathFinder):
    """The modules of all jobs of a session. Modules that this process can import anyway come first.

    `needs_all`: the tasks run in this process too, so each module of a job is needed.
    """

    def __init__(self, *, needs_all: bool = False) -> None:
        self._needs_all = needs_all
        self._spaces: list[_Space] = []
        self._lock = threading.RLock()
        self._opening = _Opening()

    def install(self) -> None:
        """Find modules from now on."""
        sys.meta_path.append(self)

    def uninstall(self) -> None:
        """Forget the modules of all jobs."""
        sys.meta_path.remove(self)
        for space in list(self._spaces):
            self.close(space.job_id)

    @contextlib.contextmanager
    def open(self, job_id: JobId, archive: bytes, pickled: bytes) -> Generator[None]:
        """Within, what was pickled finds the job's modules first; from then on the job's threads do, until `close`.

        Raises ConfigurationError: another job has imported another module of the same name.
        """
        with self._lock:
            space = self._add(job_id, archive, pickled) if archive else None
        former, self._opening.space = self._opening.space, space
        try:
            yield
        except BaseException:
            self.close(job_id)
            raise
        finally:
            self._opening.space = former

    def close(self, job_id: JobId) -> None:
        """The job is over. What no other job needs is forgotten, so that a changed module can come under its name."""
        with self._lock:
            for space in self._spaces:
                space.is_closed = space.is_closed or space.job_id == job_id
            wanted = {top for one in self._spaces if not one.is_closed for top in one.needed}
            for space in list(self._spaces):
                loaded = space.loaded()
                if not space.is_closed or any(_top(name) in wanted for name in loaded):
                    continue
                for name in loaded:
                    del sys.modules[name]
                self._spaces.remove(space)
                shutil.rmtree(space.folder, ignore_errors=True)
            importlib.invalidate_caches()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a top-level module lies. What is below it, Python finds next to it.

        Raises: ModuleNotFoundError: the job imports it from a package that is not shipped.
        """
        spaces = self._by_turn()
        for space in spaces if path is None else ():
            if fullname in space.tops:
                space.needed.add(fullname)
                return PathFinder.find_spec(fullname, [space.folder])
        for space in spaces:
            space.missing.find_spec(fullname)
        return None

    def _by_turn(self) -> list[_Space]:
        """Return the space of this thread's job alone; of a thread without a job, all."""
        if self._opening.space is not None:
            return [self._opening.space]
        job_id = job_of_thread()
        own = [one for one in self._spaces if one.job_id == job_id]
        return own or [one for one in self._spaces if not one.is_closed]

    def _add(self, job_id: JobId, archive: bytes, pickled: bytes) -> _Space:
        contents = _contents(archive)
        tops = _digests(contents)
        needed = set(tops) if self._needs_all else _needed(contents, set(tops), pickled)
        needed = {name for name in needed if not _is_here_anyway(name, self)}
        for space in self._spaces:
            for name in sorted(needed & space.needed):
                if not space.is_closed and space.tops[name] != tops[name]:
                    raise ConfigurationError(
                        f"the job brings a module '{name}', and job {space.job_id}, which is not "
                        "over, has brought a different one. Sources and sinks of both run in the "
                        "session's process, which can have only one of them. Rename the module, "
                        "wait for the end of that job, or run one of them by its own driver."
                    )
        folder = tempfile.mkdtemp(prefix="job-", dir=_OWN.made())
        space = _Space(job_id, folder, tops, missing_packages(archive), needed)
        try:
            unpack(archive, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._spaces.append(space)
        importlib.invalidate_caches()
        return space


_SOURCE: Final = ".py"


def _contents(archive: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as modules:
        return {name: modules.read(name) for name in modules.namelist() if not name.endswith("/")}


def _digests(contents: Mapping[str, bytes]) -> dict[str, str]:
    """Return a digest of all that is below each top-level name."""
    found: dict[str, hashlib._Hash] = {}
    for path in sorted(contents):
        made = found.setdefault(_top_of_file(path), hashlib.sha256())
        made.update(f"{path}\0{len(contents[path])}\0".encode() + contents[path])
    return {name: made.hexdigest() for name, made in found.items()}


def _needed(contents: Mapping[str, bytes], tops: AbstractSet[str], pickled: bytes) -> set[str]:
    """Return the top-level names that unpickling may import: those that stand there, and what these import in turn."""
    found: set[str] = set()
    new = {_top(text) for text in _texts(pickled)} & tops
    while new:
        found |= new
        sources = [
            data
            for path, data in contents.items()
            if path.endswith(_SOURCE) and _top_of_file(path) in new
        ]
        new = {_top(name) for source in sources for name in _imports(source)} & tops - found
    return found


def _texts(pickled: bytes) -> Iterator[str]:
    """Yield the texts of a pickle without running it: the names of its modules are among them."""
    for _, argument, _ in pickletools.genops(pickled):
        if isinstance(argument, str):
            # GLOBAL has the module and the name in one text.
            yield argument.split(" ")[0]


def _imports(source: bytes) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return  # It cannot be imported either.
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield node.module


def _is_here_anyway(name: str, spaces: ModuleSpaces) -> bool:
    """Whether this process imports the module from elsewhere."""
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        finders = [one for one in sys.meta_path if one is not spaces]
        return any(one.find_spec(name, None) is not None for one in finders)
    return False


def _top(name: str) -> str:
    return name.partition(".")[0]


def _top_of_file(path: str) -> str:
    return path.partition("/")[0].removesuffix(_SOURCE)
