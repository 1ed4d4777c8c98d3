"""RESULTS.md: the figures of one call as a table, with the command and the machine."""

import datetime as dt
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.figures import Figure

RESULTS = Path(__file__).parent / "RESULTS.md"
HEADINGS = ("figure", "median (min to max)", "unit", "floor (min to max)", "ratio", "settings")


def write_results(figures: Sequence[Figure], runs: int) -> None:
    command = shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])
    packages = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "numpy"))
    machine = f"{os.cpu_count()} cores ({_processor()}), {_memory_gib():.0f} GiB"
    lines = [
        "# Benchmark results",
        "",
        f"* Command: `{command}` ({runs} runs of each)",
        f"* Date: {dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC",
        f"* Machine: {machine}, {platform.system()} {platform.release()}",
        f"* Versions: Python {platform.python_version()}, {packages}",
        "",
        "The job runs on two TaskManagers (Spark tasks, one slot each) of an embedded Spark on this",
        "machine. The floor is the same work without the engine, in the same call; each module in",
        "this directory says what it is. Ratio: value over floor, of the medians. Of rates more is",
        "better, of seconds and milliseconds less.",
        "",
        f"| {' | '.join(HEADINGS)} |",
        f"|{'---|' * len(HEADINGS)}",
        *(figure.table_row() for figure in figures),
        "",
    ]
    RESULTS.write_text("\n".join(lines), encoding="utf-8")


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
