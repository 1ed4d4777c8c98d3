"""What all peers read: bids as JSON lines and as Parquet, lines of words. Made once for each size.

The bids are those of the Nexmark source, with a text of about a hundred letters as `extra`; of each size there are two files, of which
rows go to one and the other in turn. Also here: the results that are expected, counted with numpy.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.peers.programs.checks import q5_sum
from penstock.connectors.nexmark import BASE_MS, NexmarkGenerator

SIZES = {"tiny": 100_000, "small": 1_000_000, "large": 10_000_000}
"""Events, of which 92 in a hundred are bids; and words."""
FILES = 2
WORDS_PER_LINE = 10
VOCABULARY = 10_000
ZIPF_EXPONENT = 1.1
SEED = 7
EVENTS_PER_SECOND = 10_000
SIZE_MS, SLIDE_MS = 10_000, 2_000
_COLUMNS = ("auction", "bidder", "price", "ts")
_STEP = 200_000
_EXTRA_LETTERS = 68
_ROW_GROUP = 100_000


@dataclass(frozen=True)
class Expected:
    """`bids`, `words`: how many. `checks`: rows and sum of each result, by workload and kind of emission."""

    bids: int
    words: int
    checks: dict[str, tuple[int, int]]


def prepared(root: Path, size: str) -> tuple[Path, Expected]:
    """The directory of that size, made if it is not there."""
    directory = root / size
    about = directory / "expected.json"
    if not about.exists():
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        bids = _write_bids(directory, SIZES[size])
        counts = _write_lines(directory, SIZES[size])
        told = {
            "bids": bids.num_rows,
            "words": int(counts.num_words),
            "checks": _checks(bids) | counts.checks(),
        }
        about.write_text(json.dumps(told))
    told = json.loads(about.read_text())
    checks = {name: (rows, total) for name, (rows, total) in told["checks"].items()}
    return directory, Expected(told["bids"], told["words"], checks)


# ---------------------------------------------------------------------- bids


def _write_bids(directory: Path, events: int) -> pa.Table:
    """All of them, without `extra`'s text but with its length."""
    generator = NexmarkGenerator(SEED, EVENTS_PER_SECOND, _COLUMNS, is_bids_only=True)
    random = np.random.default_rng(SEED)
    for name in ("json", "parquet"):
        (directory / name).mkdir()
    texts = [(directory / "json" / f"part-{part}.json").open("wb") for part in range(FILES)]
    tables: list[pq.ParquetWriter] = []
    kept = []
    for start in range(0, events, _STEP):
        bids = generator.batch(start, min(events, start + _STEP))
        bids = bids.append_column("extra", _letters(random, bids.num_rows))
        if not tables:
            paths = [directory / "parquet" / f"part-{part}.parquet" for part in range(FILES)]
            tables = [pq.ParquetWriter(path, bids.schema) for path in paths]
        for part in range(FILES):
            rows = bids.take(pa.array(np.arange(part, bids.num_rows, FILES)))
            texts[part].write(_json_lines(rows))
            tables[part].write_batch(rows, row_group_size=_ROW_GROUP)
        lengths = pc.cast(pc.binary_length(bids.column("extra")), pa.int64())
        kept.append(bids.set_column(bids.num_columns - 1, "extra", lengths))
    for file in (*texts, *tables):
        file.close()
    return pa.Table.from_batches(kept)


def _letters(random: np.random.Generator, rows: int) -> pa.Array:
    lengths = random.integers(_EXTRA_LETTERS * 4 // 5, _EXTRA_LETTERS * 6 // 5 + 1, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    letters = random.integers(ord("a"), ord("z") + 1, int(offsets[-1]), np.uint8)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters))


def _json_lines(rows: pa.RecordBatch) -> bytes:
    parts: list[Any] = []
    for place, field in enumerate(rows.schema):
        head = f'{"," if place else "{"}"{field.name}":'
        value = rows.column(place)
        if pa.types.is_string(field.type):
            parts += [head + '"', value, '"']
        else:
            parts += [head, pc.cast(value, pa.string())]
    lines = pc.binary_join_element_wise(*parts, "}\n", "")
    return _bytes_of(lines)


def _bytes_of(strings: pa.Array) -> bytes:
    offsets = np.frombuffer(strings.buffers()[1], np.int32)
    begin, end = offsets[strings.offset], offsets[strings.offset + len(strings)]
    return strings.buffers()[2].slice(int(begin), int(end - begin)).to_pybytes()


def _checks(bids: pa.Table) -> dict[str, tuple[int, int]]:
    auction, bidder, price, ts, extra = (
        bids.column(name).to_numpy() for name in (*_COLUMNS, "extra")
    )
    _, counts = np.unique(bidder, return_counts=True)
    thousandths = np.round(1000 * (0.908 * price)).astype(np.int64)
    q1 = (auction + 3 * bidder + 7 * thousandths + 11 * (ts - BASE_MS) + 13 * extra).sum()
    return {
        "keyed_state updates": (len(bidder), _sum_of_running(counts)),
        "q1 updates": (len(auction), int(q1)),
        "q5 final": q5_sum(_hottest(auction, ts)),
    }


def _sum_of_running(counts: Any) -> int:
    """Each key's count after each of its records, all together."""
    return int((counts * (counts + 1) // 2).sum())


def _hottest(auction: Any, ts: Any) -> list[tuple[int, int, int]]:
    """(auction, bids, window end) of the hottest auctions of each window."""
    pane, first = ts // SLIDE_MS, int(ts[0]) // SLIDE_MS
    width = int(auction.max()) + 1
    panes = np.bincount(
        (pane - first) * width + auction, minlength=int(pane[-1] - first + 1) * width
    )
    panes = panes.reshape(-1, width)
    per_window = SIZE_MS // SLIDE_MS
    found = []
    for last in range(len(panes) + per_window - 1):
        total = panes[max(0, last - per_window + 1) : last + 1].sum(axis=0)
        most, end = int(total.max()), (first + last + 1) * SLIDE_MS
        found += [(int(one), most, end) for one in np.flatnonzero(total == most)] if most else []
    return found


# ---------------------------------------------------------------------- words


@dataclass(frozen=True)
class _WordCounts:
    words: list[str]
    counts: Any

    @property
    def num_words(self) -> int:
        return int(self.counts.sum())

    def checks(self) -> dict[str, tuple[int, int]]:
        lengths = np.array([len(word) for word in self.words])
        there = self.counts > 0
        final = (self.counts * self.counts + self.counts * lengths)[there].sum()
        return {
            "word_count updates": (self.num_words, _sum_of_running(self.counts)),
            "word_count final": (int(there.sum()), int(final)),
        }


def _write_lines(directory: Path, words: int) -> _WordCounts:
    random = np.random.default_rng(SEED)
    weights = np.arange(1, VOCABULARY + 1, dtype=np.float64) ** -ZIPF_EXPONENT
    edges = np.cumsum(weights / weights.sum())
    names = [f"word{number}" for number in range(VOCABULARY)]
    vocabulary, counts = pa.array(names), np.zeros(VOCABULARY, np.int64)
    (directory / "lines").mkdir()
    files = [(directory / "lines" / f"part-{part}.txt").open("wb") for part in range(FILES)]
    for start in range(0, words, _STEP):
        lines = min(_STEP, words - start) // WORDS_PER_LINE
        drawn = np.minimum(
            np.searchsorted(edges, random.random((WORDS_PER_LINE, lines))), VOCABULARY - 1
        )
        counts += np.bincount(drawn.ravel(), minlength=VOCABULARY)
        text = pc.binary_join_element_wise(*[vocabulary.take(pa.array(one)) for one in drawn], " ")
        text = pc.binary_join_element_wise(text, "\n", "")
        for part, file in enumerate(files):
            file.write(_bytes_of(text.take(pa.array(np.arange(part, lines, FILES)))))
    for file in files:
        file.close()
    return _WordCounts(names, counts)
