"""Committed output as it becomes visible: finished files of a directory, rows of a table. Imports nothing of Penstock.

Rows come as a dict of int64 arrays by column.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Rows = dict[str, np.ndarray]


class Output(Protocol):
    """Gives each row once."""

    def read_on(self) -> Rows: ...


class Files:
    """Lines of numbers with commas, in files whose names do not begin with a dot. A file that is there does not change."""

    def __init__(self, folder: Path, columns: Sequence[str]) -> None:
        self._folder = folder
        self._columns = columns
        self._known: set[str] = set()

    def read_on(self) -> Rows:
        texts = []
        for path in sorted(set(self._paths()) - self._known):
            if not os.path.basename(path).startswith("."):
                self._known.add(path)
                texts.append(Path(path).read_bytes())
        return _parsed(b"".join(texts), self._columns)

    def hidden(self) -> list[str]:
        """Files that nobody has committed."""
        return sorted(name for name in map(os.path.basename, self._paths()) if name.startswith("."))

    def _paths(self) -> Iterator[str]:
        for folder, _, names in os.walk(self._folder):
            for name in names:
                yield os.path.join(folder, name)

    @property
    def parts(self) -> int:
        return len(self._known)


class Table:
    """A table with a column `id` that the database counts up.

    In PostgreSQL a number may become visible after a higher one: those that are missing are asked for again.
    """

    def __init__(self, url: str, table: str, columns: Sequence[str]) -> None:
        self._url = url
        self._table = table
        self._columns = columns
        self._last = 0
        self._missing: list[tuple[int, int]] = []

    def read_on(self) -> Rows:
        ranges = [*self._missing, (self._last + 1, 2**62)]
        names = ", ".join(["id", *self._columns])
        found: list[tuple[int, ...]] = []
        with _connect(self._url) as connection:
            for start in range(0, len(ranges), 200):
                part = ranges[start : start + 200]
                where = " OR ".join(f"id BETWEEN {low} AND {high}" for low, high in part)
                cursor = connection.cursor()
                cursor.execute(f"SELECT {names} FROM {self._table} WHERE {where}")
                found += cursor.fetchall()
        array = np.array(found, np.int64).reshape(-1, len(self._columns) + 1)
        array = array[np.argsort(array[:, 0])]
        self._note(array[:, 0])
        return {name: array[:, i + 1] for i, name in enumerate(self._columns)}

    def _note(self, ids: np.ndarray) -> None:
        """Which numbers, up to the highest, have not been seen."""
        seen = set(ids.tolist())
        still = [
            (low, high)
            for low, high in self._missing
            if not any(low <= one <= high for one in seen)
        ]
        for low, high in self._missing:
            if (low, high) not in still:
                still += _gaps(low, high, sorted(one for one in seen if low <= one <= high))
        new = ids[ids > self._last]
        if len(new):
            places = np.r_[self._last, new]
            jumps = np.flatnonzero(np.diff(places) > 1)
            still += [(int(places[i]) + 1, int(places[i + 1]) - 1) for i in jumps]
            self._last = int(new[-1])
        self._missing = sorted(still)


def _gaps(low: int, high: int, seen: list[int]) -> list[tuple[int, int]]:
    edges = [low - 1, *seen, high + 1]
    return [(a + 1, b - 1) for a, b in pairwise(edges) if b - a > 1]


@contextlib.contextmanager
def _connect(url: str) -> Generator[Any]:
    """By the URL that the sink has: SQLite or PostgreSQL."""
    if url.startswith("sqlite:///"):
        connection: Any = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)
    else:
        import psycopg

        connection = psycopg.connect(url.replace("postgresql+psycopg://", "postgresql://"))
    try:
        yield connection
    finally:
        connection.close()


def _parsed(text: bytes, columns: Sequence[str]) -> Rows:
    if not text:
        return {name: np.zeros(0, np.int64) for name in columns}
    numbers = text.decode("ascii").replace("\n", ",").rstrip(",")
    array = np.fromstring(numbers, np.int64, sep=",").reshape(-1, len(columns))
    return {name: array[:, i] for i, name in enumerate(columns)}
