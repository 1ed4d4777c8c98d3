"""A lookup join gives what a join of plain dicts gives: whatever the batches, the cache and the limits are."""

import tempfile
from pathlib import Path

import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row
from penstock.connectors.sql_lookup import LookupCache, SqlLookup
from tests.tools.connectors.lookups import Lookups

NUMBERS = st.one_of(st.none(), st.integers(0, 5), st.integers())
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "A", "a ", "é"]), st.text(max_size=3))
KEYS = st.tuples(NUMBERS, TEXTS)
STORED = st.tuples(
    st.one_of(st.none(), st.integers(0, 5)),
    st.one_of(st.none(), st.sampled_from(["", "a", "A", "a ", "é"])),
)
CACHES = st.one_of(
    st.none(), st.builds(LookupCache, st.integers(1, 5), cache_missing_key=st.booleans())
)


@given(
    table=st.lists(STORED, max_size=8),
    batches=st.lists(st.lists(KEYS, max_size=8), max_size=4),
    cache=CACHES,
    most_keys=st.integers(1, 4),
    is_left=st.booleans(),
)
def test_a_lookup_join_is_a_join_of_dicts(table, batches, cache, most_keys, is_left):
    by_key = {}
    for number, key in enumerate(table):
        if None not in key:
            by_key.setdefault(key, []).append(number)
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'x.db')}"
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        with engine.begin() as connection:
            connection.execute(sa.text("CREATE TABLE t (n BIGINT, s TEXT, number INTEGER)"))
            for number, (n, s) in enumerate(table):
                values = {"n": n, "s": s, "number": number}
                connection.execute(sa.text("INSERT INTO t VALUES (:n, :s, :number)"), values)
        made = SqlLookup.builder().set_url(url).set_table("t").set_key_columns(["n", "s"])
        lookup = made.set_cache(cache).set_max_keys(most_keys).build()
        how = "left" if is_left else "inner"
        with Lookups(lookup.function(["n", "s"], how)) as look:
            for keys in batches:
                records = [Row(n=n, s=s) for n, s in keys]
                for key, record, results in zip(keys, records, look(*records), strict=True):
                    expected = by_key.get(key, [])
                    if not expected and is_left:
                        assert results == [(record, None)]
                        continue
                    assert [one for one, _ in results] == [record] * len(expected)
                    assert sorted(row["number"] for _, row in results) == expected
