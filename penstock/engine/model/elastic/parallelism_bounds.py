"""What is asked for a job whose parallelism may change: a lower and an upper bound for each vertex.

Does not know who asks, and decides nothing: `engine/machines/generations` does. Source: Flink JobResourceRequirements,
JobVertexResourceRequirements (docs/spec/elasticity.md#requirements).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.ids import VertexId

UNSET: Final = -1
"""A bound that is left open: the lower one becomes 1, the upper one the max parallelism."""


@dataclass(frozen=True, slots=True)
class ParallelismBounds:
    """Fewest and most subtasks of a vertex, both included; UNSET only as long as nobody has resolved them."""

    lower: int
    upper: int

    def __str__(self) -> str:
        return f"{self.lower}..{self.upper}"


JobResourceRequirements: TypeAlias = Mapping[VertexId, ParallelismBounds]
"""The bounds of all vertices of a job. Two that are equal ask for the same."""


def requirements_to_plain(requirements: Mapping[VertexId, ParallelismBounds]) -> dict[str, Any]:
    """The form in which requirements are stored and sent: Flink's JSON, `{id: {"parallelism": {"lowerBound": 1, ...}}}`."""
    return {
        str(vertex): {"parallelism": {"lowerBound": bounds.lower, "upperBound": bounds.upper}}
        for vertex, bounds in requirements.items()
    }


def requirements_from_plain(plain: object) -> dict[str, ParallelismBounds]:
    """The bounds by what names the vertex. A bound that is missing is UNSET.

    Raises: ConfigurationError: another form; the text says where.
    """
    if not isinstance(plain, Mapping):
        raise _refusal("resource requirements", plain, "an object with an entry for each vertex")
    return {str(vertex): _bounds(str(vertex), entry) for vertex, entry in plain.items()}


def _bounds(vertex: str, entry: object) -> ParallelismBounds:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("parallelism"), Mapping):
        raise _refusal(f"resource requirements of vertex '{vertex}'", entry, _FORM)
    given = entry["parallelism"]
    return ParallelismBounds(
        _whole(vertex, given, "lowerBound"),
        _whole(vertex, given, "upperBound"),
    )


_FORM: Final = '{"parallelism": {"lowerBound": 1, "upperBound": 4}}'


def _whole(vertex: str, given: Mapping[str, object], key: str) -> int:
    value = given.get(key, UNSET)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refusal(f"{key} of vertex '{vertex}'", value, "a whole number")
    return value


def _refusal(what: str, got: object, expected: str) -> ConfigurationError:
    return ConfigurationError(f"{what}: got {got!r}, but expected {expected}. Change the request.")
