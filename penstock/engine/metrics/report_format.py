"""The form of metrics on their way from a TaskManager to the driver: names once, then packed numbers.

A report has a header, descriptions, and one section for each task and operator. A description lists the metrics of a section in order; it is
known by the hash of its text, so the subtasks of a vertex share one. A sender repeats its descriptions from time to time: a reader
that has missed one skips the sections that need it until then. No pickle: JSON and struct only. Source: none; Flink dumps
all names with each report (MetricDumpSerialization).

    4 bytes  magic
    u32      length of the header, JSON: variables of the process, among them host and tm_id
    u16      number of descriptions; each: 8 bytes hash, u32 length, JSON
    u32      number of sections; each: u32 length, 8 bytes hash, i32 subtask, i32 attempt, the numbers, JSON of the texts
"""

from __future__ import annotations

import json
import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Final, TypeAlias

from penstock.engine.metrics.scopes import Component, query_id
from penstock.engine.metrics.values import STATISTICS
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.metrics import (
    Distribution,
    Groups,
    Measured,
    MetricType,
    Quantiles,
    Rate,
    Value,
)

REPEAT_EVERY: Final = 6
"""After this number of reports a sender describes everything again."""
MOST_DESCRIPTIONS: Final = 100_000
_MAGIC: Final = b"PSM1"
_COUNT: Final = struct.Struct("<I")
_FEW: Final = struct.Struct("<H")
_SECTION: Final = struct.Struct("<8sii")
_HASH_BYTES: Final = 8
_KINDS: Final[Mapping[type, str]] = {Rate: "r", Quantiles: "q", Distribution: "s"}
_MADE: Final = {"r": Rate, "q": Quantiles, "s": Distribution}
_INT64: Final = range(-(2**63), 2**63)

_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    Component.TASK: ("job_id", "task_id"),
    Component.OPERATOR: ("job_id", "task_id", "operator_id", "operator_name"),
}

_Row: TypeAlias = tuple[str, str, str, Groups]
"""Name, type, kind, groups. Kind: the fields in a section: i, d, b (as i), r (rate), q (quantiles), s (distribution), t (text)."""
_FIELDS: Final = {"i": "q", "d": "d", "b": "q", "r": "dq", "q": "qqq9d", "s": "4q", "t": ""}
_LAYOUTS: Final = {kind: struct.Struct("<" + fields) for kind, fields in _FIELDS.items()}
_SIZES: Final = {kind: layout.size for kind, layout in _LAYOUTS.items()}


@dataclass(frozen=True, slots=True)
class Section:
    """The metrics of one task or operator. `variables`: those that its subtasks share, such as `task_id` and `operator_name`.

    `subtask`, `attempt`: -1 for what is of the whole process.
    """

    component: Component
    variables: Mapping[str, str]
    metrics: Sequence[Measured]
    subtask: int = -1
    attempt: int = -1


class Description:
    """The metrics of a section without their values, in order. `size`: bytes of the numbers."""

    __slots__ = (
        "component",
        "index",
        "layout",
        "offsets",
        "rows",
        "size",
        "text_places",
        "variables",
    )

    def __init__(
        self, component: Component, variables: Mapping[str, str], rows: tuple[_Row, ...]
    ) -> None:
        self.component = component
        self.variables = variables
        self.rows = rows
        self.layout = _layout(rows)
        self.size = self.layout.size
        widths = [_SIZES[kind] for _, _, kind, _ in rows]
        self.offsets = tuple(accumulate(widths, initial=_SECTION.size))[:-1]
        self.index = dict(_rest_index(rows, variables.get("operator_name", "")))
        """(row, suffix of a histogram's statistic) by the id that REST shows."""
        texts = (row for row, (_, _, kind, _) in enumerate(rows) if kind == "t")
        self.text_places = {row: place for place, row in enumerate(texts)}


@dataclass(frozen=True, slots=True)
class Received:
    """A section as it came: its bytes are unpacked only when somebody asks for a value."""

    description: Description
    subtask: int
    attempt: int
    body: bytes
    texts: Sequence[str]

    def value(self, row: int) -> Value:
        """The value of one metric."""
        kind = self.description.rows[row][2]
        if kind == "t":
            return self.texts[self.description.text_places[row]]
        numbers = _LAYOUTS[kind].unpack_from(self.body, self.description.offsets[row])
        return _value(kind, numbers)

    def measured(self) -> Iterator[Measured]:
        """All metrics."""
        for row, (name, kind, _, groups) in enumerate(self.description.rows):
            yield Measured(name, MetricType(kind), self.value(row), groups)


@dataclass(frozen=True, slots=True)
class Report:
    """One report. `skipped`: sections whose description has not come yet."""

    variables: Mapping[str, str]
    sections: Sequence[Received]
    skipped: int = 0


class ReportEncoder:
    """The sender's side of one connection. Not thread-safe."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        """`variables`: of the process, as the header has them."""
        self._header = _json(variables)
        self._sent: set[bytes] = set()
        self._known: dict[Any, tuple[bytes, bytes, struct.Struct]] = {}
        self._reports = 0

    def encode(self, sections: Iterable[Section]) -> bytes:
        """Encode a report. It has the descriptions that this connection has not carried yet."""
        if self._reports % REPEAT_EVERY == 0:
            self._sent.clear()
            self._known.clear()
        self._reports += 1
        news: list[bytes] = []
        bodies = [self._section(section, news) for section in sections]
        parts = [_MAGIC, _COUNT.pack(len(self._header)), self._header, _FEW.pack(len(news)), *news]
        parts.append(_COUNT.pack(len(bodies)))
        for body in bodies:
            parts += [_COUNT.pack(len(body)), body]
        return b"".join(parts)

    def _section(self, section: Section, news: list[bytes]) -> bytes:
        rows = tuple(_row(one) for one in section.metrics)
        key = (section.component, tuple(section.variables.items()), rows)
        found = self._known.get(key)
        if found is None:
            self._known[key] = found = _described(section, rows)
        hashed, text, layout = found
        if hashed not in self._sent and len(news) < 0xFFFF:
            self._sent.add(hashed)
            news.append(hashed + _COUNT.pack(len(text)) + text)
        numbers: list[Any] = []
        texts: list[str] = []
        for (_, _, kind, _), one in zip(rows, section.metrics, strict=True):
            _put(kind, one.value, numbers, texts)
        tail = _json(texts) if texts else b""
        head = _SECTION.pack(hashed, section.subtask, section.attempt)
        return head + layout.pack(*numbers) + tail


@dataclass(slots=True)
class ReportDecoder:
    """The reader's side, for all senders: whoever describes something describes it for all. The descriptions used last are kept."""

    _known: OrderedDict[bytes, Description] = field(default_factory=OrderedDict)

    def decode(self, payload: bytes) -> Report:
        """Read a report. Raises: ExternalError: these are not the bytes of one."""
        try:
            return self._decode(payload)
        except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ExternalError(
                f"a report of metrics ({len(payload)} bytes) cannot be read: "
                f"{type(error).__name__}: {error}. "
                "Do driver and TaskManager have the same version?"
            ) from error

    def _decode(self, payload: bytes) -> Report:
        if payload[: len(_MAGIC)] != _MAGIC:
            raise ValueError(f"it begins with {payload[:4]!r}, expected {_MAGIC!r}")
        place = len(_MAGIC)
        header, place = _block(payload, place)
        (count,) = _FEW.unpack_from(payload, place)
        place += _FEW.size
        for _ in range(count):
            hashed = payload[place : place + _HASH_BYTES]
            text, place = _block(payload, place + _HASH_BYTES)
            self._keep(hashed, _description(text))
        (count,) = _COUNT.unpack_from(payload, place)
        place += _COUNT.size
        found: list[Received] = []
        for _ in range(count):
            body, place = _block(payload, place)
            section = self._section(body)
            if section is not None:
                found.append(section)
        variables = json.loads(header)
        if "tm_id" not in variables:
            raise ValueError("its header does not name the TaskManager")
        _strings(variables.values())
        return Report(variables, found, count - len(found))

    def _keep(self, hashed: bytes, description: Description) -> None:
        self._known.setdefault(hashed, description)
        if len(self._known) > MOST_DESCRIPTIONS:
            self._known.popitem(last=False)

    def _section(self, body: bytes) -> Received | None:
        hashed, subtask, attempt = _SECTION.unpack_from(body)
        description = self._known.get(hashed)
        if description is None:
            return None
        self._known.move_to_end(hashed)
        if len(body) < _SECTION.size + description.size:
            raise ValueError(f"a section has {len(body)} bytes, expected {description.size} more")
        tail = body[_SECTION.size + description.size :]
        texts = _strings(json.loads(tail)) if tail else ()
        if len(texts) != len(description.text_places):
            raise ValueError(f"it has {len(texts)} texts, expected {len(description.text_places)}")
        return Received(description, subtask, attempt, body, texts)


def _described(section: Section, rows: tuple[_Row, ...]) -> tuple[bytes, bytes, struct.Struct]:
    text = _json([section.component, dict(section.variables), rows])
    hashed = blake2b(text, digest_size=_HASH_BYTES).digest()
    return hashed, text, _layout(rows)


def _description(text: bytes) -> Description:
    component, variables, rows = json.loads(text)
    missing = set(_NEEDED.get(component, ())) - set(_strings(variables))
    if missing:
        raise ValueError(f"a description of a {component} lacks {', '.join(sorted(missing))}")
    _strings(variables.values())
    return Description(Component(component), variables, tuple(_described_row(*one) for one in rows))


def _described_row(name: object, kind: str, packed: str, groups: Iterable[Any]) -> _Row:
    if packed not in _FIELDS:
        raise ValueError(f"{packed!r} is no kind of value")
    (found,) = _strings([name])
    pairs = tuple((key, value) for key, value in groups)
    _strings(word for pair in pairs for word in pair if word is not None)
    return found, MetricType(kind).value, packed, pairs


def _strings(found: Iterable[Any]) -> list[str]:
    """The texts. Raises: ValueError: something else is among them."""
    texts = list(found)
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("something is no text")
    return texts


def _rest_index(rows: tuple[_Row, ...], operator: str) -> Iterator[tuple[str, tuple[int, str]]]:
    for row, (name, _, kind, groups) in enumerate(rows):
        rest_id = query_id(groups, name, operator)
        if kind != "q":
            yield rest_id, (row, "")
            continue
        for suffix in STATISTICS:
            yield f"{rest_id}_{suffix}", (row, suffix)


def _layout(rows: tuple[_Row, ...]) -> struct.Struct:
    return struct.Struct("<" + "".join(_FIELDS[kind] for _, _, kind, _ in rows))


def _row(one: Measured) -> _Row:
    return one.name, one.type.value, _kind(one.value), one.groups


def _kind(value: Value) -> str:
    if isinstance(value, bool):
        return "b"
    if isinstance(value, int):
        return "i" if value in _INT64 else "d"
    if isinstance(value, float):
        return "d"
    return _KINDS.get(type(value), "t")


def _put(kind: str, value: Value, numbers: list[Any], texts: list[str]) -> None:
    if isinstance(value, Rate | Quantiles | Distribution):
        numbers += astuple(value)
    elif isinstance(value, str):
        texts.append(value)
    else:
        numbers.append(_double(value) if kind == "d" else value)


def _double(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # An int that no double holds.
        return float("inf") if value > 0 else float("-inf")


def _value(kind: str, numbers: Sequence[Any]) -> Value:
    make = _MADE.get(kind)
    if make is not None:
        made: Value = make(*numbers)
        return made
    (number,) = numbers
    found: Value = bool(number) if kind == "b" else number
    return found


def _block(payload: bytes, place: int) -> tuple[bytes, int]:
    (length,) = _COUNT.unpack_from(payload, place)
    begin = place + _COUNT.size
    end = begin + length
    if end > len(payload):
        raise ValueError(f"it ends at {len(payload)}, expected at least {end}")
    return payload[begin:end], end


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
