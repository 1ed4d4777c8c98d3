"""Names of PyFlink that Penstock does not have. Using one raises an error that says what to use instead."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn


def absent(
    module: str,
    instead: Mapping[str, str],
    also: Sequence[str] = (),
    elsewhere: Mapping[str, str] | None = None,
    *,
    modules: Mapping[str, Mapping[str, str]] | None = None,
    is_package: bool = False,
) -> Callable[[str], Any]:
    """A `__getattr__` for `module`, by which importing one of these names raises NotImplementedError.

    `instead`: for each name a sentence that says what to use; braces in it are not formatted. `also`: modules whose
    names PyFlink's module has too, because it imports them, and which programs import from there. `elsewhere`: single
    such names with their modules, which are imported when the name is asked for. `modules`: modules of this package that
    Penstock does not have, each with its own `instead`; they are registered, so that programs can import them.
    `is_package`: its modules are found, too, so that `import penstock.datastream as ds; ds.window` works as with PyFlink,
    which imports them all.
    """
    places = elsewhere or {}
    for short, names in (modules or {}).items():
        _register(module, short, names)

    def lookup(name: str) -> Any:
        if name in instead:
            pyflinks = module.replace("penstock", "pyflink", 1)
            raise NotImplementedError(
                f"{pyflinks}.{name} has no counterpart in Penstock. {instead[name]}"
            )
        if name == "__all__" and places:
            return [*places]
        if name in places:
            return getattr(importlib.import_module(places[name]), name)
        for place in map(importlib.import_module, also):
            if name in dir(place) and not name.startswith("_"):
                return getattr(place, name)
        if is_package and not name.startswith("_"):
            full_name = f"{module}.{name}"
            if importlib.util.find_spec(full_name) is not None:
                return importlib.import_module(full_name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return lookup


def _register(package: str, name: str, instead: Mapping[str, str]) -> None:
    full_name = f"{package}.{name}"
    made = ModuleType(full_name, "Names of PyFlink that Penstock does not have.")
    made.__spec__ = ModuleSpec(full_name, None)
    made.__getattr__ = absent(full_name, instead)  # type: ignore[method-assign] # PEP 562
    sys.modules[full_name] = made
    setattr(sys.modules[package], name, made)


def listing(own: Iterable[str], elsewhere: Iterable[str]) -> Callable[[], list[str]]:
    """A `__dir__` for a module, so that completion finds its own names and those of `absent`'s `elsewhere`."""
    return lambda: sorted({*own, *elsewhere})


def gone(instead: Mapping[str, str]) -> Callable[[object, str], NoReturn]:
    """A `__getattr__` for a class that had these methods in PyFlink 1. The error says what to call today.

    `instead`: for each name a sentence that says what to use.
    """

    def lookup(of: object, name: str) -> NoReturn:
        text = f"{type(of).__name__!r} object has no attribute {name!r}"
        if name in instead:
            text += f", as in PyFlink 2. {instead[name]}"
        raise AttributeError(text)

    return lookup
