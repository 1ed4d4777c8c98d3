"""Names of PyFlink that Penstock does not have: whoever asks for one is told what to use instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

OWN_SOURCE: Final = (
    "Write a subclass of penstock.datastream.connectors.Source around a Python client of the service, or let Spark read it "
    "and take env.from_spark."
)
OWN_SINK: Final = (
    "Write a subclass of penstock.datastream.connectors.Sink around a Python client of the service, or take to_spark and let "
    "Spark write it."
)


def absent(module: str, instead: Mapping[str, str]) -> Callable[[str], Any]:
    """`__getattr__` for `module`, so that importing one of these names raises NotImplementedError.

    `instead`: by name, a sentence that says what to use. `{...}` of str.format is not read in it.
    """

    def lookup(name: str) -> Any:
        if name in instead:
            pyflinks = module.replace("penstock", "pyflink", 1)
            raise NotImplementedError(
                f"{pyflinks}.{name} has no counterpart in Penstock. {instead[name]}"
            )
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return lookup
