"""Takes the snapshot of user code that a method of the API was given.

Source: PyFlink, which pickles a function in `map`, `process` and so on; Flink ClosureCleaner's ensureSerializable.
"""

from __future__ import annotations

from typing import TypeVar

from penstock.engine.hosting.shipping.pickling import deserialize, serialize
from penstock.engine.model.errors import GraphError

_V = TypeVar("_V")


def as_given(value: _V, what: str, defined_at: str) -> _V:
    """A copy that what the program changes later does not reach. `what`, `defined_at`: for the error's text.

    Raises: GraphError: it cannot be pickled.
    """
    try:
        copy: _V = deserialize(serialize(value))
    except Exception as error:  # Pickling runs user code, which may raise anything.
        raise GraphError(
            f"{what}, built at {defined_at or 'an unknown place'}, cannot be sent to the "
            f"TaskManagers: {type(error).__name__}: {error}. A function, and all that it refers "
            "to, must be picklable: open files, locks, sockets and sessions belong into open(), "
            "not into the constructor or a closure."
        ) from error
    return copy
