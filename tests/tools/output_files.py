"""What file sinks have left in a folder."""

from collections.abc import Iterable
from pathlib import Path


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def hidden_below(folder: Path) -> list[Path]:
    """What is not committed, or was not cleared away."""
    return [path for path in files_below(folder) if path.name.startswith(".")]


def lines_in(files: Iterable[Path]) -> list[str]:
    return [line for path in files for line in path.read_text().splitlines()]


def committed_lines(folder: Path) -> list[str]:
    """Of a job that has ended. Raises: AssertionError: hidden files are left."""
    assert hidden_below(folder) == []
    return lines_in(files_below(folder))
