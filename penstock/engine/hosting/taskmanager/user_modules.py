"""The program's code in a TaskManager: chains of operators, which are the job's own, and modules, which all jobs of the process share.

Modules of user code in a process that jobs share: forgotten after a job, so that the next one imports them anew.

PyFlink runs the functions of each job in processes of its own, so nobody expects to find what another job has put into the globals
of a module. Libraries stay, because they are slow to import, and many can be imported only once.
"""

from __future__ import annotations

import hashlib
import site
import sys
import sysconfig
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Final

from penstock.engine.hosting.shipping import missing_packages
from penstock.engine.hosting.shipping.module_archive import unpack
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.ids import BlobKey
from penstock.engine.model.messages import PutBlob

_OURS: Final = frozenset({"penstock", "pyspark", "py4j", "__main__"})
_SOURCES: Final = (".py", ".pyc")


def forget_user_modules(before: frozenset[str], libraries: Iterable[str] = ()) -> list[str]:
    """Have the next import of user code's modules load them again. Returns: their names.

    `before`: names of modules that stay. `libraries`: folders whose modules stay, besides those of Python and of its installed
    packages. A package of which one module is compiled stays as a whole.
    """
    kept = tuple(f"{folder}/" for folder in {*_installed(), *libraries} if folder)
    packages: dict[str, list[str]] = defaultdict(list)
    for name in set(sys.modules) - before:
        packages[name.partition(".")[0]].append(name)
    forgotten = [
        name
        for package, names in packages.items()
        if package not in _OURS and all(_is_user_code(sys.modules[name], kept) for name in names)
        for name in names
    ]
    for name in forgotten:
        del sys.modules[name]
    return sorted(forgotten)


def _is_user_code(module: ModuleType | None, kept: tuple[str, ...]) -> bool:
    places = list(_places(module))
    return bool(places) and not any(place.startswith(kept) for place in places)


def _places(module: ModuleType | None) -> Iterator[str]:
    """The source of a module, or the folders of a package without one. Nothing: it is neither."""
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        if file.endswith(_SOURCES):
            yield file
    else:
        for folder in getattr(module, "__path__", ()):
            yield f"{folder}/"


def _installed() -> set[str]:
    """The folders of Python's own modules and of installed packages."""
    paths = sysconfig.get_paths()
    own = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    users = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
    return {*own, *site.getsitepackages(), users}


PREFIX: Final = "penstock-modules-"
"""Of the folder's name, by which `process_state.py` knows what was shipped."""


class SharedModules:
    """The modules of one kind of jobs, importable as long as the process lives: Python keeps what was imported. Any thread."""

    def __init__(self, folder: str | None = None) -> None:
        """`folder`: has the modules' own; None: it is among the temporary files, and needs `close`."""
        self._parent = folder
        self._lock = threading.Lock()
        self._digest = b""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._missing: list[MetaPathFinder] = []

    @property
    def path(self) -> str | None:
        """The entry of `sys.path`; None: no job has brought modules."""
        return None if self._folder is None else self._folder.name

    def install(self, archive: bytes) -> None:
        """Make modules importable, unless an earlier job has done that.

        Raises: ExternalError: a name in the archive is outside of its folder; or other modules are here already.
        """
        digest = hashlib.sha256(archive).digest()
        with self._lock:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix=PREFIX, dir=self._parent)
                unpack(archive, self._folder.name)
                self._digest = digest
                sys.path.insert(0, self._folder.name)
                self._missing = missing_packages.install([archive])
            elif digest != self._digest:
                raise ExternalError(
                    "a job brought other modules than the jobs before it in this process; the "
                    "driver must give it a process of its own"
                )

    def close(self) -> None:
        """Remove the files."""
        with self._lock:
            missing_packages.uninstall(self._missing)
            if self._folder is not None:
                self._folder.cleanup()
                self._folder = None


class UserModules:
    """The code of one job. `chains`: pickled, by key. `close` removes the modules' files, unless they are shared."""

    def __init__(self, shared: SharedModules | None = None) -> None:
        self.chains: dict[BlobKey, bytes] = {}
        self._modules = shared or SharedModules()
        self._owns_modules = shared is None

    def put(self, blob: PutBlob) -> None:
        """Keep what the driver has sent. Raises: as `SharedModules.install`."""
        if blob.key.startswith("modules-"):
            self._modules.install(blob.data)
        else:
            self.chains[blob.key] = blob.data

    def close(self) -> None:
        if self._owns_modules:
            self._modules.close()
