"""Names of PyFlink that Penstock does not have. Using one raises an error that says what to use instead."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

OWN_SOURCE: Final = (
    "Write a subclass of penstock.datastream.connectors.Source around a Python client of the "
    "service, or let Spark read it and use env.from_spark."
)
OWN_SINK: Final = (
    "Write a subclass of penstock.datastream.connectors.Sink around a Python client of the "
    "service, or use to_spark and let Spark write it."
)


def absent(
    module: str,
    instead: Mapping[str, str],
    also: Sequence[str] = (),
    elsewhere: Mapping[str, str] | None = None,
    *,
    is_package: bool = False,
) -> Callable[[str], Any]:
    """A `__getattr__` for `module`, by which importing one of these names raises NotImplementedError.

    `instead`: for each name a sentence that says what to use; braces in it are not formatted. `also`: modules whose
    names PyFlink's module has too, because it imports them, and which programs import from there. `elsewhere`: single
    such names with their modules, which are imported when the name is asked for. `is_package`: its modules are, too, so
    that `import penstock.datastream as ds; ds.window` works as with PyFlink, which imports them all.
    """
    places = elsewhere or {}

    def lookup(name: str) -> Any:
        if name in instead:
            pyflinks = module.replace("penstock", "pyflink", 1)
            raise NotImplementedError(
                f"{pyflinks}.{name} has no counterpart in Penstock. {instead[name]}"
            )
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
