"""The cache of a lookup: bounded by rows, and by time."""

import pytest

from penstock.common.time import Duration
from penstock.connectors.sql_lookup import LookupCache, RowCache
from penstock.engine.model.errors import ConfigurationError


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def test_what_was_not_used_for_longest_goes_first():
    cache = RowCache(LookupCache(max_rows=3))
    for key in "abc":
        cache.put(key, [key])
    cache.get("a")
    cache.put("d", ["d"])
    assert [cache.get(key) for key in "abcd"] == [["a"], None, ["c"], ["d"]]


def test_rows_count_and_a_key_without_rows_counts_as_one():
    cache = RowCache(LookupCache(max_rows=4))
    cache.put("three", [1, 2, 3])
    cache.put("none", [])
    assert cache.count == 4
    cache.put("two", [1, 2])
    assert (cache.get("three"), cache.get("none"), cache.count) == (None, [], 3)
    cache.put("two", [1])
    assert cache.count == 2


def test_a_key_with_more_rows_than_all_that_may_be_kept_is_not_kept():
    cache = RowCache(LookupCache(max_rows=2))
    cache.put("a", [1])
    cache.put("big", [1, 2, 3])
    assert (cache.get("big"), cache.get("a"), cache.count) == (None, [1], 1)


def test_rows_expire_after_they_were_written(clock):
    cache = RowCache(LookupCache(expire_after_write=Duration.of_seconds(10)), clock)
    cache.put("a", [1])
    clock.now_s += 9.9
    assert cache.get("a") == [1]
    clock.now_s += 0.1
    assert (cache.get("a"), cache.count) == (None, 0)


def test_rows_expire_after_they_were_used_last(clock):
    cache = RowCache(LookupCache(expire_after_access=Duration.of_seconds(10)), clock)
    cache.put("a", [1])
    for _ in range(5):
        clock.now_s += 9
        assert cache.get("a") == [1]
    clock.now_s += 10
    assert cache.get("a") is None


def test_missing_keys_are_kept_unless_told_otherwise():
    kept, not_kept = RowCache(LookupCache()), RowCache(LookupCache(cache_missing_key=False))
    for cache in (kept, not_kept):
        cache.put("a", [])
    assert (kept.get("a"), not_kept.get("a"), not_kept.count) == ([], None, 0)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"max_rows": 0}, "max_rows is 1 or more, got 0"),
        ({"max_rows": "many"}, "max_rows is a number, got 'many'"),
        (
            {"expire_after_write": Duration.of_nanos(5)},
            "expire_after_write is a Duration of 1 ms or more",
        ),
        ({"expire_after_access": Duration.of_millis(0)}, "expire_after_access is a Duration"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, text):
    with pytest.raises(ConfigurationError, match=text):
        LookupCache(**settings)
