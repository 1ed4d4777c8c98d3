"""RESULTS.md: one section per benchmark, with its command, date and machine.

A call replaces the sections of the benchmarks that it ran, and leaves the others as they are.
"""

import datetime as dt
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks.figures import Figure

RESULTS = Path(__file__).parent / "RESULTS.md"
HEADINGS = (
    "figure", "median (min to max)", "unit", "floor or peer (min to max)", "ratio", "settings",
)  # fmt: skip
TITLE = """\
# Benchmark results

One section per benchmark: a run of one leaves the others as they are. Ratio: value over floor or
peer, of the medians. Of rates more is better, of seconds, milliseconds and memory less."""
ON_SPARK = """\
The job runs on two TaskManagers (Spark tasks, one slot each) of an embedded Spark on this machine.
The floor is the same work without the engine, in the same call; each module in this directory says
what it is."""
_HEADING = "## "


@dataclass(frozen=True)
class Section:
    """One benchmark of this call. `about`: what the figures are. `module`: what is called."""

    name: str
    figures: Sequence[Figure]
    about: str = ON_SPARK
    module: str = "benchmarks"


def write_results(sections: Sequence[Section], runs: int, order: Sequence[str]) -> None:
    """Into RESULTS.md. `order`: of all benchmarks, known sections of other names come last."""
    known = _read_sections(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    known.update({section.name: _body(section, runs) for section in sections})
    RESULTS.write_text(_joined(known, order), encoding="utf-8")


def _read_sections(text: str) -> dict[str, str]:
    """Bodies by name; what stands ahead of the first heading is not kept."""
    found: dict[str, str] = {}
    for part in f"\n{text}".split(f"\n{_HEADING}")[1:]:
        name, _, body = part.partition("\n")
        found[name.strip()] = body.strip("\n")
    return found


def _joined(bodies: Mapping[str, str], order: Sequence[str]) -> str:
    names = sorted(bodies, key=lambda name: order.index(name) if name in order else len(order))
    sections = [f"{_HEADING}{name}\n\n{bodies[name]}" for name in names]
    return "\n\n".join([TITLE, *sections]) + "\n"


def _body(section: Section, runs: int) -> str:
    command = shlex.join(["python", "-m", section.module, *sys.argv[1:]])
    packages = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "numpy"))
    machine = f"{os.cpu_count()} cores ({_processor()}), {_memory_gib():.0f} GiB"
    lines = [
        f"* Command: `{command}` ({runs} runs of each)",
        f"* Date: {dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC",
        f"* Machine: {machine}, {platform.system()} {platform.release()}",
        f"* Versions: Python {platform.python_version()}, {packages}",
        "",
        section.about,
        "",
        f"| {' | '.join(HEADINGS)} |",
        f"|{'---|' * len(HEADINGS)}",
        *(figure.table_row() for figure in section.figures),
    ]
    return "\n".join(lines)


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
