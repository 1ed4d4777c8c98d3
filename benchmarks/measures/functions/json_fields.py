"""Files of JSON lines that row functions read, in one process without Spark: the format and one operator, no exchange.

Lines have 190 bytes and 7 fields, as bids of Nexmark, all declared. Seconds are CPU seconds of the process. The first figures are with
msgspec, those named `pyarrow` as without it. Floor: the format reads all fields as columns; the
figure named `json.loads` has `json.loads` for each line as its value, with the same floor.
"""

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure
from benchmarks.measures.functions.row_functions import BID, FIELDS, chain_of, with_loop
from penstock.connectors.file_system import StreamFormat
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.operators import FilterOperator, MapOperator
from penstock.engine.runtime.operators.stateless import FunctionOperator
from penstock.formats import json_columns as records
from penstock.formats.file_format import FileFormat, FilePiece

ABOUT = __doc__.split("\n\n", maxsplit=1)[1].strip()
LINES = 200_000
DEAR = 9000
THREE = ("auction", "bidder", "price")


def all_seven(bid: Any) -> tuple[Any, ...]:
    auction, bidder, price, channel, url, ts, extra = bid
    return auction, bidder, price * 0.908, channel, url, ts, extra


def _map(function: Callable[[Any], Any]) -> FunctionOperator:
    return MapOperator(UserFunction(function))


def _filter(function: Callable[[Any], Any]) -> FunctionOperator:
    return FilterOperator(UserFunction(function))


CASES: dict[str, tuple[Sequence[str], Callable[[], FunctionOperator]]] = {
    "3 of 7 fields, as columns": (
        THREE,
        lambda: _map(lambda bid: (bid.auction, bid.bidder, bid.price * 0.908)),
    ),
    "7 of 7 fields, as columns": (tuple(FIELDS), lambda: _map(all_seven)),
    "2 of 7 fields, as fields": (("auction", "channel"), lambda: _map(with_loop)),
    "the records": (tuple(FIELDS), lambda: _map(lambda bid: bid)),
    "a filter on 1 of 7": (("price",), lambda: _filter(lambda bid: bid.price > DEAR)),
}


def line(number: int) -> dict[str, Any]:
    return {
        "auction": number % 1000, "bidder": number * 7 % 1009, "price": number * 7919 % 10_000,
        "channel": f"channel-{number % 9}", "url": f"https://auction.example/{number % 9000}",
        "ts": 1_700_000_000_000 + number, "extra": "extra" * 8,
    }  # fmt: skip


def _odd(number: int) -> dict[str, Any]:
    """A number is a text, so that neither msgspec nor pyarrow reads it."""
    return {**line(number), "price": str(number)}


def _not_alike(number: int) -> dict[str, Any]:
    """pyarrow reads it, msgspec does not: a field that is not declared has half of a surrogate pair in its name."""
    return {**line(number), "deep": [[number]], "nested": {"is": [1.5, None, {"a": "b"}]}}


def _rate(read: Iterator[Any], operator: FunctionOperator) -> float:
    """Records/s."""
    chain = chain_of([operator])
    begin, count = time.process_time(), 0
    for batch in read:
        count += len(batch)
        for _routed in chain.feed(batch):
            pass
    return count / (time.process_time() - begin)


def _read(form: FileFormat, path: Path) -> Iterator[Any]:
    return form.read(FilePiece(str(path), 0, None, path.stat().st_size))


class _WithoutMsgspec:
    """A format that reads as where msgspec is not installed."""

    def __init__(self, names: Sequence[str]) -> None:
        with _no_msgspec():
            self._form = StreamFormat.json_lines_format(BID).reading(names)

    def read(self, piece: FilePiece) -> Iterator[Any]:
        with _no_msgspec():
            yield from self._form.read(piece)


@contextlib.contextmanager
def _no_msgspec() -> Generator[None]:
    found, records.msgspec_module = records.msgspec_module, lambda: None
    try:
        yield
    finally:
        records.msgspec_module = found


def _compared(
    name: str,
    path: Path,
    make: Callable[[], FunctionOperator],
    form: Callable[[], FileFormat],
    runs: int,
) -> Figure:
    pairs = []
    for run in range(runs):
        forms = [form(), StreamFormat.json_lines_format(BID)]
        order = (0, 1) if run % 2 else (1, 0)
        rates = {at: _rate(_read(forms[at], path), make()) for at in order}
        pairs.append((rates[0], rates[1]))
    values, floors = zip(*pairs, strict=True)
    return Figure(f"json_fields {name}", values, "records/s", floors, {"lines": LINES})


def _loads_rate(path: Path) -> float:
    lines = path.read_bytes().splitlines()
    begin = time.process_time()
    for _ in map(json.loads, lines):
        pass
    return len(lines) / (time.process_time() - begin)


def measure(_events: int | None, runs: int) -> list[Figure]:
    figures = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        paths = {}
        for kind in (line, _odd, _not_alike):
            paths[kind] = Path(folder, kind.__name__)
            lines = (json.dumps(kind(number)) for number in range(LINES))
            paths[kind].write_text("".join(f"{one}\n" for one in lines))
        for name, (names, make) in CASES.items():
            with_it = partial(StreamFormat.json_lines_format(BID).reading, names)
            without = partial(_WithoutMsgspec, names)
            figures += [
                _compared(name, paths[line], make, with_it, runs),
                _compared(f"{name}, pyarrow", paths[line], make, without, runs),
            ]
        names, make = CASES["3 of 7 fields, as columns"]
        form = partial(StreamFormat.json_lines_format(BID).reading, names)
        figures += [
            _compared("3 of 7, a text for a number", paths[_odd], make, form, runs),
            _compared("3 of 7, nested fields besides", paths[_not_alike], make, form, runs),
        ]
        loads = [_loads_rate(paths[line]) for _ in range(runs)]
        figures.append(
            Figure(
                "json_fields json.loads", loads, "records/s", figures[0].floors, {"lines": LINES}
            )
        )
    return figures
