"""Finds the operator that cannot be pickled, after pickling a whole chain has failed.

Does not know pickle or cloudpickle: the serializer is passed in. Source: Flink ClosureCleaner's
ensureSerializable; differs: it runs only after serializing has failed, so a program without such an error pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.model.errors import GraphError
from penstock.model.graph.stream_graph import StreamGraph


def find_unserialisable(
    graph: StreamGraph, serialize: Callable[[object], bytes]
) -> GraphError | None:
    """The error that names the first operator or partitioner that `serialize` refuses. None if it refuses none."""
    for node in graph.nodes.values():
        cause = _refusal(serialize, node.operator)
        if cause is not None:
            return _error(f"operator '{node.name}'", node.defined_at, cause)
    for edge in graph.edges:
        cause = None if edge.partitioning is None else _refusal(serialize, edge.partitioning)
        if cause is not None:
            target = graph.nodes[edge.target]
            return _error(
                f"the key selector or partitioner before '{target.name}'", target.defined_at, cause
            )
    return None


def _refusal(serialize: Callable[[object], bytes], value: object) -> Exception | None:
    try:
        serialize(value)
    except Exception as error:  # Pickling runs user code, which may raise anything.
        return error
    return None


def _error(what: str, defined_at: str, cause: Exception) -> GraphError:
    error = GraphError(
        f"{what}, built at {defined_at or 'an unknown place'}, cannot be sent to the TaskManagers: "
        f"{type(cause).__name__}: {cause}. A function, and all that it refers to, must be "
        "picklable: open files, locks, sockets and sessions belong into open(), not into the "
        "constructor or a closure."
    )
    error.__cause__ = cause
    return error
