"""JSON objects of one form, a line each, as columns: what a program has written, with the same names in the same order and spacing.

All between the values is then the same text on each line, so the values lie at places that arithmetic finds. pyarrow's parser looks at
each sign instead, and accepts more than JSON, so its answer has to be checked (`python -m benchmarks json_lines`). Texts without escapes, numbers, truth values and nulls of
numbers are read. For all else there is no result, and the caller asks a parser: whatever is read is what a parser would read.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.datastream.formats.json_blocks.numbers import (
    Numbers,
    PaddedText,
    Places,
    doubles,
    integers,
)

_FIRST: Final = re.compile(rb'\{ *"([^"]*)" *: *("?)')
_NEXT: Final = re.compile(rb' *, *"([^"]*)" *: *("?)')
_PLAIN: Final = re.compile(rb"[-+.\w]+")
_LAST: Final = re.compile(rb'"? *\}')
_QUOTE, _LINE_END, _SPACE, _N = b'"\n n'
_LEAST_LINES: Final = 1024
"""Below, a parser is quicker than so many small steps of arithmetic."""
_UNLIKE: Final = 2
"""The first line may be so many times as long as the others."""
_SAMPLES: Final = 4


class _Form(NamedTuple):
    """`constants`: what is before each value, and behind the last. `names`: of the values. `texts`: which values have quotes."""

    constants: tuple[bytes, ...]
    names: tuple[bytes, ...]
    texts: tuple[bool, ...]


class _Lines(NamedTuple):
    """A text of lines of one form. `starts`, `ends`: of each value, by its place in the form."""

    form: _Form
    text: PaddedText
    starts: list[Places]
    ends: list[Places]


def read_forms(block: bytes, schema: pa.Schema) -> pa.RecordBatch | None:
    """One row for each line. None: the lines have no form, are too few, or have not each field of the schema.

    `block`: valid UTF-8; the last line needs no end. A field of the lines that is not in the schema must be valid, too.
    """
    form = _form_of_all(block)
    if form is None:
        return None
    names = [name.decode() for name in form.names]
    if len(set(names)) < len(names) or not set(schema.names) <= set(names):
        return None
    lines = _placed(block if block.endswith(b"\n") else block + b"\n", form)
    if lines is None:
        return None
    columns: dict[str, pa.Array] = {}
    for place, name in enumerate(names):
        kind = schema.field(name).type if name in schema.names else None
        if not form.texts[place]:
            columns[name] = _read_plain(lines, place, kind)
            if columns[name] is None:
                return None
        elif kind is not None:
            columns[name] = _read_text(lines, place)
            if not kind.equals(columns[name].type):
                return None
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _form_of_all(block: bytes) -> _Form | None:
    """The form of some of the lines; None: there are few lines, or some differ already."""
    if b"\\" in block or len(block) > np.iinfo(np.int32).max // 2:
        return None
    first_end = block.find(b"\n")
    if first_end < 0 or len(block) < first_end * _LEAST_LINES // _UNLIKE:
        return None
    form = _form_of(block[:first_end])
    for sample in range(1, _SAMPLES) if form is not None else ():
        start = block.find(b"\n", len(block) * sample // _SAMPLES) + 1
        end = block.find(b"\n", start)
        if start and end > start and _form_of(block[start:end]) != form:
            return None
    return form


def _form_of(line: bytes) -> _Form | None:
    """The form of an object of plain values; None: it is something else."""
    constants, names, texts = [], [], []
    at = done = 0
    pattern = _FIRST
    while (head := pattern.match(line, at)) is not None:
        name, quote = head.groups()
        at = head.end()
        constants.append(line[done:at])
        names.append(name)
        texts.append(bool(quote))
        if quote:
            done = line.find(b'"', at)
            if done < 0:
                return None
            at = done + 1
        else:
            value = _PLAIN.match(line, at)
            if value is None:
                return None
            done = at = value.end()
        pattern = _NEXT
    if not names or _LAST.fullmatch(line, done) is None:
        return None
    return _Form((*constants, line[done:]), tuple(names), tuple(texts))


def _placed(block: bytes, form: _Form) -> _Lines | None:
    """Where the values are; None: a line has another form."""
    text = PaddedText(block)
    controls = np.flatnonzero(text.text < _SPACE)
    if (text.text[controls] != _LINE_END).any():
        return None
    ends = controls + text.first
    count = len(ends)
    starts = np.concatenate([[text.first], ends[:-1] + 1])
    quotes_of = [constant.count(b'"') for constant in form.constants]
    found = np.flatnonzero(text.text == _QUOTE) + text.first
    if count < _LEAST_LINES or len(found) != count * sum(quotes_of):
        return None
    # A row for each line, if each line has as many quotes. That is so if they are within it.
    quotes = found.reshape(count, -1)
    if not ((quotes[:, 0] >= starts) & (quotes[:, -1] < ends)).all():
        return None
    begins, done = [], 0
    for constant, number in zip(form.constants[:-1], quotes_of, strict=False):
        begins.append(quotes[:, done] - constant.index(b'"'))
        done += number
    begins.append(ends - len(form.constants[-1]))
    is_one_form = (begins[0] == starts).all() and all(map(text.has, form.constants, begins))
    if not is_one_form or (form.texts[-1] and not (quotes[:, -1] == begins[-1]).all()):
        return None
    values = [begin + len(constant) for begin, constant in zip(begins, form.constants, strict=True)]
    return _Lines(form, text, values[:-1], begins[1:])


def _read_text(lines: _Lines, place: int) -> pa.Array:
    """Texts between two quotes. There are no other quotes, escapes or control characters in the lines."""
    starts, ends = lines.starts[place], lines.ends[place]
    # Texts and what is between them, in turns, are one array over the block.
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2], offsets[1::2] = starts, ends
    every = pa.StringArray.from_buffers(
        len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(lines.text.bytes)
    )
    return every.take(pa.array(np.arange(0, len(offsets), 2)))


def _read_plain(lines: _Lines, place: int, kind: pa.DataType | None) -> pa.Array | None:
    """Numbers, truth values and nulls. `kind`: None: nobody reads them."""
    text, starts, ends = lines.text, lines.starts[place], lines.ends[place]
    if (ends <= starts).any():
        return None
    nulls = None
    if (text.signs[starts] == _N).any():
        nulls = text.are(b"null", starts, ends)
        # A zero is before the text.
        starts = np.where(nulls, text.first - 1, starts)
        ends = np.where(nulls, text.first, ends)
    if kind is None:
        found = _any_of(text, starts, ends, nulls)
    elif pa.types.is_signed_integer(kind):
        found = _narrowed(integers(text, starts, ends), np.dtype(f"i{kind.bit_width // 8}"))
    elif pa.types.is_float64(kind):
        found = doubles(text, starts, ends)
    elif pa.types.is_boolean(kind):
        found = _truths(text, starts, ends, nulls)
    else:
        return None
    return None if found is None else pa.array(found, kind, mask=nulls)


def _any_of(
    text: PaddedText, starts: Places, ends: Places, nulls: Numbers | None
) -> Numbers | None:
    for read in (integers, doubles):
        found = read(text, starts, ends)
        if found is not None:
            return found
    return _truths(text, starts, ends, nulls)


def _narrowed(values: Numbers | None, kind: np.dtype[Any]) -> Numbers | None:
    if values is None:
        return None
    narrow = values.astype(kind)
    return narrow if (narrow == values).all() else None


def _truths(
    text: PaddedText, starts: Places, ends: Places, nulls: Numbers | None
) -> Numbers | None:
    is_true = text.are(b"true", starts, ends)
    known = is_true | text.are(b"false", starts, ends)
    if nulls is not None:
        known |= nulls
    return is_true if known.all() else None
