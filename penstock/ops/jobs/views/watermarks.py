"""The watermarks of all vertices of a job: the lowest and the highest one, who is left out, and what holds the lowest. Flink has no such path.

Watermarks are epoch ms of event time. What is not known is None, and `why` says the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from penstock.engine.model.ids import VertexId
from penstock.ops.jobs.diagnosis.shares import live
from penstock.ops.jobs.diagnosis.watermarks import (
    LAST_WATERMARK_MS,
    NO_WATERMARK_MS,
    Figures,
    sent_by,
    split_that_holds,
)
from penstock.ops.jobs.snapshots import JobSnapshot, VertexSnapshot
from penstock.ops.jobs.views.attempts import Json, place_of

MOST_IDLE: Final = 5
"""How many idle channels of a vertex are named; all are counted."""
_NO_REPORT: Final = "no subtask has reported yet"
_ENDED: Final = "all its subtasks have ended"
_NO_WATERMARK: Final = "none of its subtasks has a watermark yet"
_LAST_WATERMARK: Final = "its input has ended"
_APART_MS: Final = 2_000
"""TaskManagers do not report at the same moment: a watermark that moves looks so much older than another one."""
_Sent: TypeAlias = tuple[int, int, VertexSnapshot, int]
"""A watermark, the same by the newest report, the vertex and the subtask that sent it."""


def watermarks(job: JobSnapshot, vertices: Sequence[Json]) -> Json:
    """`/jobs/:jobid/watermarks`. `vertices`: as `of_vertex` makes them."""
    return {"now": job.now_ms, "vertices": vertices}


def of_vertex(
    job: JobSnapshot, vertex: VertexSnapshot, figures: Figures, speed: float = 1.0
) -> Json:
    """A vertex. The watermark of a subtask is that of its input, of a source that of its output.

    `without`: how many subtasks have none yet. `ended`: how many got the last one.
    `idle`: channels that the vertex does not wait for: their senders stand below its own lowest watermark. `speed`: milliseconds of event time in a millisecond.
    """
    known = [(io.watermark_ms, one.subtask) for one, io in live(vertex)]
    moving = [one for one in known if NO_WATERMARK_MS < one[0] < LAST_WATERMARK_MS]
    without = sum(one <= NO_WATERMARK_MS for one, _ in known)
    lowest, highest = min(moving, default=None), max(moving, default=None)
    sent = list(_sent_to(job, vertex, figures))
    # A subtask without a watermark holds all that come after it.
    floor_ms = NO_WATERMARK_MS if without or lowest is None else lowest[0]
    idle_ms = floor_ms - _APART_MS * max(1.0, speed)
    idle = [one for one in sent if one[1] < idle_ms]
    return {
        "id": vertex.facts.vertex_id,
        "name": vertex.facts.name,
        "source": not vertex.facts.inputs,
        "subtasks": len(known),
        "lowest": _shown(job, lowest),
        "highest": _shown(job, highest),
        "without": without,
        "ended": sum(one >= LAST_WATERMARK_MS for one, _ in known),
        "channels": len(sent),
        "idle": {
            "count": len(idle),
            "subtasks": [place_of(sender, subtask) for _, _, sender, subtask in idle[:MOST_IDLE]],
        },
        "holder": _holder(vertex, lowest, [one for one in sent if one[1] >= idle_ms], figures),
        "why": _why(vertex, known, without) if lowest is None else None,
    }


def _sent_to(job: JobSnapshot, vertex: VertexSnapshot, figures: Figures) -> Iterator[_Sent]:
    """Yield what the subtasks before this vertex sent last."""
    by_id: Mapping[VertexId, VertexSnapshot] = {one.facts.vertex_id: one for one in job.vertices}
    for source in dict.fromkeys(one.source for one in vertex.facts.inputs):
        for watermark_ms, newest_ms, subtask in sent_by(by_id[source], figures):
            yield watermark_ms, newest_ms, by_id[source], subtask


def _holder(
    vertex: VertexSnapshot,
    lowest: tuple[int, int] | None,
    sent: Sequence[_Sent],
    figures: Figures,
) -> Json | None:
    """What the lowest watermark comes from: a subtask before this vertex, or of a source itself, with its split."""
    if sent:
        watermark_ms, _, sender, subtask = min(sent, key=lambda one: one[0])
    elif lowest is not None and not vertex.facts.inputs:
        (watermark_ms, subtask), sender = lowest, vertex
    else:
        return None
    split = split_that_holds(figures.splits(sender, subtask), watermark_ms)
    return {**place_of(sender, subtask), "split": split}


def _shown(job: JobSnapshot, found: tuple[int, int] | None) -> Json | None:
    if found is None:
        return None
    watermark_ms, subtask = found
    return {"watermark": watermark_ms, "lag": job.now_ms - watermark_ms, "subtask": subtask}


def _why(vertex: VertexSnapshot, known: Sequence[tuple[int, int]], without: int) -> str:
    if not known:
        has_ended = all(one.state.is_terminal for one in vertex.attempts)
        return _ENDED if has_ended else _NO_REPORT
    return _NO_WATERMARK if without else _LAST_WATERMARK
