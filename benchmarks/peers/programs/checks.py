"""For all programs: arguments, checks, and the line in which a result is told. Only the standard library.

A check is how many rows came out and an order-independent sum over them:

* word_count, updates: the count after each word. Final: count * count + count * length of the word, of each word.
* keyed_state, updates: the count of the bidder's bids after each bid.
* q1: auction + 3 bidder + 7 price in thousandths + 11 time + 13 length of extra.
* q5: 3 auction + 7 bids + 11 window end in seconds, of the hottest auctions of each window.
"""

import argparse
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

BASE_MS = 1_700_000_000_000
WORKLOADS = ("word_count", "keyed_state", "q1", "q5")


class Arguments:
    """`data`: of one size. `warm`: of another, for a run before the one that is timed, of whom that does good. `form`: json or
    parquet. `kind`: updates or final.
    """

    def __init__(self) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("workload", choices=WORKLOADS)
        parser.add_argument("--data", type=Path, required=True)
        parser.add_argument("--warm", type=Path, required=True)
        parser.add_argument("--form", choices=["json", "parquet"], default="json")
        parser.add_argument("--kind", choices=["updates", "final"], default="updates")
        parser.add_argument("--mode", default="", help="of the peer's own")
        parser.add_argument("--parallelism", type=int, default=2)
        told = parser.parse_args()
        self.workload: str = told.workload
        self.form: str = told.form
        self.kind: str = told.kind
        self.mode: str = told.mode
        self.parallelism: int = told.parallelism
        kind = "lines" if self.workload == "word_count" else self.form
        self.input: Path = told.data.absolute() / kind
        self.warm_input: Path = told.warm.absolute() / kind


def tell(seconds: float, check: tuple[int, int] | None, **more: Any) -> None:
    """The last words of a program. `check` None: what came out was dropped by the peer's own sink."""
    rows, total = check or (None, None)
    print(
        "RESULT " + json.dumps({"seconds": seconds, "rows": rows, "sum": total, **more}), flush=True
    )


def each(of: Callable[[Any], int]) -> Callable[[Iterable[Any]], int]:
    """The sum over many rows of what `of` says of one."""
    return lambda rows: sum(map(of, rows))


def q1_of(auction: int, bidder: int, price: float, ts: int, extra: str) -> int:
    return auction + 3 * bidder + 7 * round(1000 * price) + 11 * (ts - BASE_MS) + 13 * len(extra)


def q1_sum(rows: Iterable[tuple[int, int, float, int, str]]) -> int:
    """The sum of `q1_of`, without a call for each row: the check should cost little beside the query."""
    parts = [
        auction + 3 * bidder + 7 * round(1000 * price) + 11 * (ts - BASE_MS) + 13 * len(extra)
        for auction, bidder, price, ts, extra in rows
    ]
    return sum(parts)


def q5_of(auction: int, bids: int, end_ms: int) -> int:
    return 3 * auction + 7 * bids + 11 * ((end_ms - BASE_MS) // 1000)


def q5_sum(rows: Iterable[tuple[int, int, int]]) -> tuple[int, int]:
    """Of (auction, bids, window end)."""
    parts = [q5_of(*row) for row in rows]
    return len(parts), sum(parts)


def final_counts_of(counts: dict[str, int]) -> tuple[int, int]:
    return len(counts), sum(n * n + n * len(word) for word, n in counts.items())


class Notes:
    """A directory in which the processes of a peer leave what they have to tell."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def leave(self, name: str, told: Any) -> None:
        """Each process as often as it likes."""
        path = os.path.join(self.directory, f"{name}-{os.getpid()}-{time.time_ns()}")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(told, file)

    def left(self, name: str) -> list[Any]:
        paths = Path(self.directory).glob(f"{name}-*")
        return [json.loads(path.read_text(encoding="utf-8")) for path in paths]

    def check(self) -> tuple[int, int]:
        """Of all that was left as `sum`: pairs of rows and sum."""
        sums = self.left("sum")
        return sum(one[0] for one in sums), sum(one[1] for one in sums)


@contextlib.contextmanager
def notes() -> Generator[Notes, None, None]:
    with tempfile.TemporaryDirectory(prefix="penstock-peers-") as directory:
        yield Notes(directory)
