"""Pairs of a former and a present type, values of the former one, and what they must become: made side by side, by the rules of
docs/spec/state.md#changed-types and without the code that is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from penstock.engine.model.row import Row
from penstock.engine.model.types import TypeInformation, Types


@dataclass(frozen=True)
class Change:
    former: TypeInformation
    present: TypeInformation
    values: st.SearchStrategy[Any]
    expected: Callable[[Any], Any]


def same(value):
    return value


SMALL = st.integers(-(2**31), 2**31 - 1)
ATOMS = [
    Change(Types.INT(), Types.LONG(), SMALL, same),
    Change(Types.SHORT(), Types.BIG_INT(), st.integers(-(2**15), 2**15 - 1), same),
    Change(Types.INT(), Types.DOUBLE(), SMALL, float),
    Change(Types.FLOAT(), Types.DOUBLE(), st.floats(width=32, allow_nan=False), same),
    Change(Types.STRING(), Types.STRING(), st.text(max_size=5), same),
    Change(Types.LONG(), Types.LONG(), SMALL, same),
    Change(Types.BOOLEAN(), Types.BOOLEAN(), st.booleans(), same),
]


def of_list(inner: Change) -> Change:
    return Change(
        Types.LIST(inner.former),
        Types.LIST(inner.present),
        st.lists(inner.values, max_size=3),
        lambda value: [inner.expected(item) for item in value],
    )


def of_map(inner: Change) -> Change:
    return Change(
        Types.MAP(Types.STRING(), inner.former),
        Types.MAP(Types.STRING(), inner.present),
        st.dictionaries(st.text(max_size=3), inner.values, max_size=3),
        lambda value: {key: inner.expected(item) for key, item in value.items()},
    )


def of_tuple(inner: list[Change]) -> Change:
    return Change(
        Types.TUPLE([one.former for one in inner]),
        Types.TUPLE([one.present for one in inner]),
        st.tuples(*(one.values for one in inner)),
        lambda value: tuple(one.expected(item) for one, item in zip(inner, value, strict=True)),
    )


def of_row(fields: list[tuple[str, Change]]) -> Change:
    """Each field stays, is added, or is dropped; the first one stays. The present order is the reverse of the former one."""
    named = [(f"f_{place}", fate, change) for place, (fate, change) in enumerate(fields)]
    before = [(name, change) for name, fate, change in named if fate != "added"]
    now = [(name, fate, change) for name, fate, change in named if fate != "dropped"][::-1]

    def expected(row):
        kept = dict(zip((name for name, _ in before), row, strict=True))
        values = {
            name: None if fate == "added" else change.expected(kept[name])
            for name, fate, change in now
        }
        return Row(**values)

    def made(values):
        return Row(**dict(zip((name for name, _ in before), values, strict=True)))

    return Change(
        Types.ROW_NAMED([name for name, _ in before], [change.former for _, change in before]),
        Types.ROW_NAMED([name for name, _, _ in now], [change.present for _, _, change in now]),
        st.tuples(*(change.values for _, change in before)).map(made),
        expected,
    )


def _composed(inner: st.SearchStrategy[Change]) -> st.SearchStrategy[Change]:
    fates = st.sampled_from(["kept", "added", "dropped"])
    first = st.tuples(st.just("kept"), inner).map(lambda one: [one])
    others = st.lists(st.tuples(fates, inner), max_size=3)
    return st.one_of(
        inner.map(of_list),
        inner.map(of_map),
        st.lists(inner, min_size=1, max_size=3).map(of_tuple),
        st.tuples(first, others).map(lambda both: of_row(both[0] + both[1])),
    )


CHANGES = st.recursive(st.sampled_from(ATOMS), _composed, max_leaves=4)
