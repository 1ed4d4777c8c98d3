"""Modules of user code in a process that jobs share: forgotten after a job, so that the next one imports them anew.

PyFlink runs the functions of each job in processes of its own, so nobody expects to find what another job has put into the globals
of a module. Libraries stay, because they are slow to import, and many can be imported only once.
"""

from __future__ import annotations

import site
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Final

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
