"""Blocks of JSON lines that become columns, in one process without Spark: what the file source does for each block.

Lines are as those of `json_fields`, in blocks of 1 MiB, and in blocks of so many lines as the figure says. Seconds are CPU seconds. Floor:
pyarrow's JSON reader on the same blocks, with nothing checked. `odd`: every thousandth line has another order of fields.
"""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import json as arrow_json

from benchmarks.figures import Figure
from benchmarks.measures.functions.json_fields import line
from benchmarks.measures.functions.row_functions import BID
from penstock.formats.json_columns import json_schema_of, read_lines

ABOUT = __doc__.split("\n\n", maxsplit=1)[1].strip()
LINES = 200_000
IN_A_MIB = 5500
FEW = (256, 1024, 4096)
ODD_ONE = 1000


def measure(_events: int | None, runs: int) -> list[Figure]:
    schema = json_schema_of(BID)
    two = pa.schema([field for field in schema if field.name in {"auction", "ts"}])
    cases: list[tuple[str, pa.Schema, int, Callable[[int], dict[str, Any]]]] = [
        ("all fields", schema, IN_A_MIB, line),
        ("2 of 7 fields", two, IN_A_MIB, line),
        ("all fields, odd", schema, IN_A_MIB, _odd),
        *((f"all fields, {few} lines", schema, few, line) for few in FEW),
    ]
    return [
        _figure(name, kind, _blocks(make, size), runs) for name, kind, size, make in cases
    ]  # fmt: skip


def _odd(number: int) -> dict[str, Any]:
    made = line(number)
    return made if number % ODD_ONE else dict(reversed(made.items()))


def _blocks(make: Callable[[int], dict[str, Any]], size: int) -> list[bytes]:
    lines = [json.dumps(make(number)) for number in range(LINES)]
    return ["\n".join(lines[start : start + size]).encode() for start in range(0, LINES, size)]


def _figure(name: str, schema: pa.Schema, blocks: Sequence[bytes], runs: int) -> Figure:
    rates = [
        (_rate(lambda block: read_lines(block, schema), blocks), _rate(_parse(schema), blocks))
        for _ in range(runs)
    ]
    values, floors = zip(*rates, strict=True)
    return Figure(f"json_lines {name}", values, "lines/s", floors, {"lines": LINES})


def _parse(schema: pa.Schema) -> Callable[[bytes], pa.Table]:
    options = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    def parse(block: bytes) -> pa.Table:
        read = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        return arrow_json.read_json(
            pa.BufferReader(block), read_options=read, parse_options=options
        )

    return parse


def _rate(read: Callable[[bytes], pa.RecordBatch | None], blocks: Sequence[bytes]) -> float:
    begin = time.process_time()
    found = sum(read(block).num_rows for block in blocks)
    if found != LINES:
        raise SystemExit(f"json_lines: expected {LINES} lines, got {found}")
    return LINES / (time.process_time() - begin)
