"""What is asked for a job: checked, resolved, and compared with what was asked before.

Pure functions on plain data. Knows no REST server and no store. Source: Flink JobResourceRequirements,
JobResourceRequirementsUpdateHeaders (docs/spec/elasticity.md#requirements); differs: open bounds are resolved before
anything is stored, and a vertex may be named by its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.engine.model.elastic import (
    UNSET,
    JobResourceRequirements,
    ParallelismBounds,
)
from penstock.engine.model.graph.job_graph import JobVertex
from penstock.engine.model.ids import VertexId


@dataclass(frozen=True, slots=True)
class CheckedRequirements:
    """`requirements`: resolved, of all vertices in the order of the graph; none if there are findings.

    `findings`: what is wrong, a line each.
    """

    requirements: JobResourceRequirements
    findings: tuple[str, ...] = ()


def default_requirements(
    vertices: Iterable[JobVertex], *, is_reactive: bool = False
) -> dict[VertexId, ParallelismBounds]:
    """The bounds of a job that nobody has asked for anything: 1 up to the parallelism that the program sets.

    Args: is_reactive: up to the max parallelism, because the job takes whatever there is.
    """
    return {
        vertex.vertex_id: ParallelismBounds(
            1, vertex.max_parallelism if is_reactive else vertex.parallelism
        )
        for vertex in vertices
    }


def check_requirements(
    asked: Mapping[str, ParallelismBounds], vertices: Sequence[JobVertex]
) -> CheckedRequirements:
    """Compare what is asked with the graph, and resolve open bounds.

    Args: asked: bounds by the id of a vertex (32 hex digits) or by its name, all vertices at once.
    """
    findings: list[str] = []
    if not asked:
        return CheckedRequirements({}, ("no requirements are given. Give bounds for each vertex",))
    by_vertex = _by_vertex(asked, vertices, findings)
    resolved: dict[VertexId, ParallelismBounds] = {}
    for vertex in vertices:
        bounds = by_vertex.get(vertex.vertex_id)
        if bounds is None:
            findings.append(
                f"vertex {_called(vertex)} has no bounds. Give bounds for each vertex of the job"
            )
            continue
        findings += _findings(vertex, bounds)
        resolved[vertex.vertex_id] = _resolved(vertex, bounds)
    return CheckedRequirements({} if findings else resolved, tuple(findings))


def changed_vertices(
    before: JobResourceRequirements, after: JobResourceRequirements
) -> tuple[VertexId, ...]:
    """The vertices for which something else is asked; none: there is nothing to do."""
    return tuple(vertex for vertex in after if before.get(vertex) != after[vertex])


def _by_vertex(
    asked: Mapping[str, ParallelismBounds], vertices: Sequence[JobVertex], findings: list[str]
) -> dict[VertexId, ParallelismBounds]:
    """The bounds by id. An id is looked for first, then a name."""
    ids = {str(vertex.vertex_id): vertex for vertex in vertices}
    times = Counter(vertex.name for vertex in vertices)
    names = {vertex.name: vertex for vertex in vertices}
    found: dict[VertexId, ParallelismBounds] = {}
    for named, bounds in asked.items():
        vertex = ids.get(named.lower()) or ids.get(named) or names.get(named)
        if vertex is None:
            findings.append(
                f"there is no vertex '{named}'. "
                f"The vertices are {', '.join(map(_called, vertices))}"
            )
        elif named not in ids and named.lower() not in ids and times[named] > 1:
            findings.append(f"{times[named]} vertices are called '{named}'. Name them by their ids")
        elif vertex.vertex_id in found:
            findings.append(
                f"vertex {_called(vertex)} is given twice, by id and by name. Give it once"
            )
        else:
            found[vertex.vertex_id] = bounds
    return found


def _findings(vertex: JobVertex, asked: ParallelismBounds) -> list[str]:
    """What is wrong with the bounds of one vertex. After a bound below 1 nothing more is looked at."""
    wrong = [
        f"{which} bound of vertex {_called(vertex)} is {bound}, but it has to be at least 1, "
        f"or {UNSET} to leave it open"
        for which, bound in (("lower", asked.lower), ("upper", asked.upper))
        if bound < 1 and bound != UNSET
    ]
    if wrong:
        return wrong
    bounds = _resolved(vertex, asked)
    if bounds.lower > bounds.upper:
        wrong.append(
            f"lower bound {bounds.lower} of vertex {_called(vertex)} is above its upper bound "
            f"{bounds.upper}. Lower the first or raise the second"
        )
    if bounds.upper > vertex.max_parallelism:
        wrong.append(
            f"upper bound {bounds.upper} of vertex {_called(vertex)} is above its max parallelism, "
            f"which cannot change. Ask for at most {vertex.max_parallelism}"
        )
    return wrong


def _resolved(vertex: JobVertex, asked: ParallelismBounds) -> ParallelismBounds:
    lower = 1 if asked.lower == UNSET else asked.lower
    return ParallelismBounds(lower, vertex.max_parallelism if asked.upper == UNSET else asked.upper)


def _called(vertex: JobVertex) -> str:
    return f"'{vertex.name}' ({vertex.vertex_id})"
