"""A savepoint as text: its operators, their states and sizes, and how evenly the keys are spread. Does no I/O."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from itertools import islice
from typing import Final

from penstock.engine.hosting.checkpoints.reader import KeyedRows, OperatorView, Savepoint

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024
_HOTTEST: Final = 3


def render_savepoint(savepoint: Savepoint) -> str:
    """All operators, from sources to sinks."""
    checkpoint = savepoint.checkpoint
    taken = dt.datetime.fromtimestamp(checkpoint.timestamp_ms / 1000, dt.UTC)
    head = (
        f"{checkpoint.checkpoint_type.value} {checkpoint.checkpoint_id} of job {checkpoint.job_id}\n"
        f"taken {taken:%Y-%m-%d %H:%M:%S} UTC, {shown_bytes(savepoint.size_bytes)} of state"
    )
    return "\n\n".join([head, *map(_operator, savepoint.operators())])


def render_rows(rows: KeyedRows, limit: int) -> str:
    """The first `limit` rows, one per line."""
    columns = rows.columns()
    lines = ["\t".join(columns)]
    lines += [
        "\t".join(map(repr, row)) for row in islice(zip(*columns.values(), strict=True), limit)
    ]
    if len(rows) > limit:
        lines.append(f"... {len(rows) - limit:,} more")
    return "\n".join(lines)


def shown_bytes(size: float) -> str:
    """A size in bytes as text: 1536 gives 1.5 KiB."""
    for unit in _UNITS[:-1]:
        if size < _STEP:
            return f"{size:,.0f} B" if unit == "B" else f"{size:,.1f} {unit}"
        size /= _STEP
    return f"{size:,.1f} {_UNITS[-1]}"


def _operator(operator: OperatorView) -> str:
    size = shown_bytes(operator.size_bytes)
    lines = [
        f"{operator.name}  (uid {operator.uid})",
        f"  parallelism {operator.parallelism} of at most {operator.max_parallelism}, {size}",
    ]
    if operator.finished:
        lines.append(f"  finished subtasks: {operator.finished} of {operator.parallelism}")
    if operator.coordinator_bytes:
        lines.append(f"  coordinator: {shown_bytes(operator.coordinator_bytes)}")
    if operator.bytes_in_flight:
        lines.append(f"  in flight: {shown_bytes(operator.bytes_in_flight)}")
    lines += [
        f"  keyed state '{state.name}': {state.kind}, {state.rows:,} rows, {shown_bytes(state.size_bytes)}"
        for state in operator.keyed
    ]
    lines += [
        f"  list state '{state.name}': {state.mode}, {state.elements:,} elements, {shown_bytes(state.size_bytes)}"
        for state in operator.lists
    ]
    skew = _skew(operator.group_rows, operator.max_parallelism)
    return "\n".join([*lines, skew] if skew else lines)


def _skew(groups: Counter[int], key_groups: int) -> str:
    """How many times as many rows as the average the fullest key groups hold."""
    total = groups.total()
    if not total:
        return ""
    mean = total / key_groups
    hottest = ", ".join(f"{group}: {rows:,}" for group, rows in groups.most_common(_HOTTEST))
    most = groups.most_common(1)[0][1]
    return f"  key groups: {len(groups)} of {key_groups} hold rows, the fullest {most / mean:.1f} times the average ({hottest})"
