"""What the configuration says of flame graphs and thread dumps. Knows neither."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StackSettings:
    """`samples`, `delay_ms`, `depth`: of a flame graph, see SampleStacks. `dump_depth`: frames of a thread in a dump.

    `refresh_ms`: how old a flame graph is when a new one is made. `cleanup_ms`: how long one is kept unasked.
    `has_flame_graphs`: whether any can be asked for.
    """

    samples: int = 100
    delay_ms: int = 50
    depth: int = 100
    refresh_ms: int = 60_000
    cleanup_ms: int = 600_000
    dump_depth: int = 50
    has_flame_graphs: bool = True
