"""Vertices of a job, and what parallelism they may have, as REST tells it and takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.engine.model.elastic import ParallelismBounds
from penstock.ops.remote.client import RemoteError


def vertex_of(details: Mapping[str, Any], wanted: str) -> dict[str, Any]:
    """Return the one vertex that is meant: by its id, the beginning of it, its name, or a part of its name.

    `details`: the job, as `/jobs/:jobid` tells it. Raises RemoteError: there is none, or more than one.
    """
    vertices: list[dict[str, Any]] = details["vertices"]
    text = wanted.lower()
    ways: tuple[Callable[[Mapping[str, Any]], bool], ...] = (
        lambda one: one["name"] == wanted,
        lambda one: one["id"].startswith(text),
        lambda one: text in one["name"].lower(),
    )
    for way in ways:
        meant = [one for one in vertices if way(one)]
        if len(meant) == 1:
            return meant[0]
        if meant:
            break
    names = ", ".join(f"{one['id'][:8]} '{one['name']}'" for one in meant or vertices)
    if not meant:
        raise RemoteError(f"the job has no vertex {wanted!r}. Vertices: {names}")
    raise RemoteError(f"{len(meant)} vertices are meant by {wanted!r}: {names}. Name one.")


def requirements_with(
    details: Mapping[str, Any],
    now: Mapping[str, ParallelismBounds],
    asked: Mapping[str, int | tuple[int, int]],
) -> dict[str, ParallelismBounds]:
    """Return the bounds of all vertices, by id. A vertex that is not asked for keeps what it has (`now`, by id).

    A number is the upper bound; the lower one is then as it is, or less. `details`: the job, as `/jobs/:jobid` tells it.
    Raises RemoteError: there is no such vertex, or more than one.
    """
    found = dict(now)
    for name, wanted in asked.items():
        key = vertex_of(details, name)["id"]
        if isinstance(wanted, tuple):
            found[key] = ParallelismBounds(*wanted)
        else:
            found[key] = ParallelismBounds(min(found[key].lower, wanted), wanted)
    return found
