"""JSON in pieces."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.ops.jobs.views.rows import Rows
from penstock.ops.rest.pieces import blocks_of, pieces_of

LEAVES = st.one_of(st.integers(), st.text(max_size=3), st.none(), st.booleans())
VALUES = st.recursive(
    LEAVES,
    lambda of: st.lists(of, max_size=4) | st.dictionaries(st.text(max_size=2), of, max_size=4),
    max_leaves=8,
)


@given(VALUES, st.sampled_from([0, 1, 300, 1001]), st.sampled_from(["list", "dict", "tuple"]))
def test_an_answer_in_pieces_is_the_whole_answer(value, times, kind):
    repeated = [value] * times
    body = {"list": repeated, "dict": dict(enumerate(repeated)), "tuple": tuple(repeated)}[kind]
    for one in (body, [body], {"a": 1, "b": body, "c": []}, [[body, value], body]):
        assert json.loads(b"".join(pieces_of(one))) == json.loads(json.dumps(one))


def test_small_pieces_come_in_few_blocks():
    """An archive has as many pieces as attempts, and each block crosses threads on its way to the client."""
    pieces = [b"%d," % number for number in range(100_000)]
    blocks = list(blocks_of(pieces))
    assert b"".join(blocks) == b"".join(pieces)
    assert len(blocks) == sum(map(len, pieces)) // (1 << 16) + 1
    assert list(blocks_of([])) == []


ROWS = [{"id": number, "values": [number, number]} for number in range(5_000)]


@pytest.mark.parametrize(
    "body",
    [ROWS, {"rows": ROWS}, {"a": {"b": ROWS}}, [[ROWS], 1], {str(n): n for n in range(20_000)}],
    ids=["list", "list in an object", "deep list", "list in a list", "object"],
)
def test_no_piece_takes_long(body):
    whole = len(json.dumps(body))
    assert max(map(len, pieces_of(body))) < whole / 10


def row(number):
    return ROWS[number]


def test_rows_are_made_as_they_are_written():
    made = []
    pieces = pieces_of({"rows": Rows(range(5_000), lambda number: made.append(number) or number)})
    for _ in range(5):
        next(pieces)
    assert 0 < len(made) < 5_000
    assert json.loads(b"".join(pieces_of({"rows": Rows(range(5_000), row)}))) == {"rows": ROWS}
    assert json.loads(b"".join(pieces_of({"rows": Rows(range(9), row)}))) == {"rows": ROWS[:9]}
    assert json.loads(b"".join(pieces_of(Rows([], row)))) == []


def test_numbers_that_json_has_no_word_for_are_texts_as_jackson_writes_them():
    body = {"a": math.nan, "b": [math.inf, (-math.inf, 1.5)], "c": Rows([math.nan], float)}
    written = b"".join(pieces_of(body))
    assert json.loads(written) == {"a": "NaN", "b": ["Infinity", ["-Infinity", 1.5]], "c": ["NaN"]}


def test_what_is_no_json_is_refused():
    with pytest.raises(TypeError, match="has a set"):
        list(pieces_of({"a": {1}}))
