"""Values that cannot be migrated are told with operator, state and what is wrong. Expectations: docs/guides/troubleshooting.md."""

from __future__ import annotations

import pytest

from penstock.common import Types
from penstock.engine.model.errors import UserError
from penstock.engine.runtime.state.migration import StateOwner, raw_change
from penstock.engine.runtime.state.snapshot import StateInfo

OWNER = StateOwner("totals", "Totals", allows_double=True)
A, AB = Types.ROW_NAMED(["a"], [Types.INT()]), Types.ROW_NAMED(["a", "b"], [Types.INT()] * 2)


def migrated(kind, former, present, raw, *, has_ttl=False):
    infos = [
        StateInfo(kind, has_ttl=has_ttl, type_text=str(one), type_info=one)
        for one in (former, present)
    ]
    return raw_change(OWNER, "s", *infos)(raw)


@pytest.mark.parametrize("has_ttl", [False, True])
def test_keys_of_a_map_that_become_one_lose_no_entry_in_silence(has_ttl):
    raw = {2**53: 1, 2**53 + 1: 2}
    if has_ttl:
        raw = {key: (value, 5) for key, value in raw.items()}
    former, present = (Types.MAP(one, Types.INT()) for one in (Types.LONG(), Types.DOUBLE()))
    with pytest.raises(UserError) as caught:
        migrated("Map", former, present, raw, has_ttl=has_ttl)
    text = str(caught.value)
    assert "operator 'Totals' (uid 'totals') cannot migrate its state 's'" in text
    assert "LONG becomes DOUBLE" in text and "two keys of the map become one" in text
    assert "former type" not in text


def test_a_value_that_never_had_its_declared_type_is_told_so():
    with pytest.raises(UserError, match="of class int does not have its former type"):
        migrated("Value", AB, A, 7)
