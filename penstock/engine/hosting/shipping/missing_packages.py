"""Packages that a program imports on the driver and that are not shipped. An import error on an
executor names the package and what to do.

The finder comes last, after all others have failed, so an executor that has the package never gets
here.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import zipfile
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from io import BytesIO
from types import ModuleType
from typing import Final

FILE: Final = "penstock-not-shipped.json"
"""In the archive of a program's modules. No module can have this name."""


class MissingPackages(MetaPathFinder):
    """`packages`: module -> "name==version" of its distribution; "": it has none."""

    def __init__(self, packages: Mapping[str, str]) -> None:
        self._packages = dict(packages)

    def __bool__(self) -> bool:
        return bool(self._packages)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Raises: ModuleNotFoundError: the module is one of them, and somebody imports it."""
        distribution = self._packages.get(fullname)
        if distribution is not None and _is_import():
            raise ModuleNotFoundError(_text(fullname, distribution), name=fullname)
        return None


def missing_packages(archive: bytes) -> MissingPackages:
    """Return what an archive of modules names."""
    if not archive:
        return MissingPackages({})
    with zipfile.ZipFile(BytesIO(archive)) as modules:
        try:
            data = modules.read(FILE)
        except KeyError:
            return MissingPackages({})
    return MissingPackages(json.loads(data))


def install(archives: Sequence[bytes]) -> list[MetaPathFinder]:
    """Explain imports of the packages that these archives name, from now on. Returns: what
    `uninstall` takes.
    """
    found: list[MetaPathFinder] = [one for one in map(missing_packages, archives) if one]
    sys.meta_path.extend(found)
    return found


def uninstall(found: Sequence[MetaPathFinder]) -> None:
    for one in found:
        with contextlib.suppress(ValueError):  # User code has replaced the list.
            sys.meta_path.remove(one)


def _is_import() -> bool:
    """Whether a module is imported, and nobody just asks with `importlib.util.find_spec` whether it is there."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_globals.get("__name__") in {__name__, "importlib._bootstrap", "_frozen_importlib"}
        or frame.f_code.co_name == "find_spec"
    ):
        if frame.f_globals.get("__name__") == "importlib.util":
            return False
        frame = frame.f_back
    return frame.f_globals.get("__name__") != "importlib.util"


def _text(module: str, distribution: str) -> str:
    here = f"No module named {module!r} in {sys.executable} on {socket.gethostname()}."
    if distribution:
        return (
            f"{here} The program imports it on the driver, from distribution {distribution}. "
            "Only the program's own modules are shipped. Install "
            f"{distribution} on the executors, or name it in the file of "
            "env.set_python_requirements(...)."
        )
    return (
        f"{here} The program imports it on the driver, where it has compiled modules and belongs "
        "to no distribution. What is compiled is not shipped. Build a wheel of it, and install it "
        "on the executors, or name it in the file of env.set_python_requirements(...)."
    )
