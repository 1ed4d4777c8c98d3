"""Keys that are asked for at the same time become one call."""

import asyncio
import threading

import pytest

from penstock.connectors.sql_lookup import BatchLoader


class Heard:
    def __init__(self):
        self.loaded, self.failed = [], 0

    def on_loaded(self, found, load_ms):
        self.loaded.append(sorted(found))
        assert load_ms >= 0

    def on_failed(self):
        self.failed += 1


class Database:
    """Holds each call until it is let go, and fails as often as it is told."""

    def __init__(self, failures=0):
        self.calls = []
        self.failures = failures
        self.gate = threading.Semaphore(1_000_000)
        self.began = threading.Semaphore(0)

    def read(self, keys):
        self.calls.append(sorted(keys))
        self.began.release()
        self.gate.acquire()
        if self.failures:
            self.failures -= 1
            raise OSError("down")
        return {key: [key.upper()] for key in keys}

    def close_the_gate(self):
        self.gate = threading.Semaphore(0)


def loader_of(database, heard=None, **settings):
    settings = {"most_keys": 100, "calls": 1, "max_retries": 0, "delay_s": 0.001, **settings}
    return BatchLoader(
        database.read, heard or Heard(), lambda error: isinstance(error, OSError), **settings
    )


def run(loader, ask):
    async def main():
        return await ask(loader)

    try:
        return asyncio.run(main())
    finally:
        loader.close()


async def _all(loader, keys):
    async def one(key):
        return await loader.load(key)

    return await asyncio.gather(*map(one, keys))


def test_the_keys_of_a_batch_are_one_call_and_each_key_is_asked_for_once():
    database, heard = Database(), Heard()
    found = run(loader_of(database, heard), lambda loader: _all(loader, "abcab"))
    assert found == [["A"], ["B"], ["C"], ["A"], ["B"]]
    assert database.calls == [["a", "b", "c"]]
    assert heard.loaded == [["a", "b", "c"]]


def test_a_call_has_no_more_keys_than_allowed():
    database = Database()
    run(loader_of(database, most_keys=2), lambda loader: _all(loader, "abcde"))
    assert database.calls == [["a", "b"], ["c", "d"], ["e"]]


def test_while_all_calls_are_busy_keys_gather():
    database = Database()
    database.close_the_gate()

    async def ask(loader):
        first = asyncio.ensure_future(_all(loader, "a"))
        await asyncio.to_thread(database.began.acquire)
        others = [loader.load(key) for key in "bcda"]
        await asyncio.wait(others, timeout=0)
        assert database.calls == [["a"]]
        database.gate.release(10)
        return await asyncio.gather(first, *others)

    found = run(loader_of(database), ask)
    assert found == [[["A"]], ["B"], ["C"], ["D"], ["A"]]
    # The second "a" has waited for the call that was under way.
    assert database.calls == [["a"], ["b", "c", "d"]]


def test_a_call_that_fails_is_made_again_as_often_as_allowed():
    database, heard = Database(failures=2), Heard()
    found = run(loader_of(database, heard, max_retries=2), lambda loader: _all(loader, "ab"))
    assert found == [["A"], ["B"]]
    assert (len(database.calls), heard.failed) == (3, 2)


def test_when_no_tries_are_left_all_who_asked_get_the_error_and_later_ones_are_served():
    database = Database(failures=2)

    async def ask(loader):
        async def one(key):
            return await loader.load(key)

        failed = await asyncio.gather(one("a"), one("b"), return_exceptions=True)
        return failed, await one("a")

    failed, later = run(loader_of(database, max_retries=1), ask)
    assert [type(one) for one in failed] == [OSError, OSError]
    assert later == ["A"]


def test_an_error_that_no_try_can_change_is_not_tried_again():
    database = Database()

    def read(keys):
        database.calls.append(keys)
        raise ValueError("no such column")

    database.read = read
    with pytest.raises(ValueError, match="no such column"):
        run(loader_of(database, max_retries=5), lambda loader: _all(loader, "a"))
    assert len(database.calls) == 1


def test_who_stops_waiting_disturbs_nobody():
    database = Database()
    database.close_the_gate()

    async def ask(loader):
        async def one(key):
            return await loader.load(key)

        gone, stays = asyncio.ensure_future(one("a")), asyncio.ensure_future(one("a"))
        await asyncio.to_thread(database.began.acquire)
        gone.cancel()
        database.gate.release()
        return await stays, gone.cancelled()

    assert run(loader_of(database), ask) == (["A"], True)


def test_a_call_that_outlives_the_event_loop_is_left_alone():
    database = Database()
    database.close_the_gate()

    async def ask(loader):
        asked = loader.load("a")
        await asyncio.to_thread(database.began.acquire)
        return asked

    loader = loader_of(database)
    asyncio.run(ask(loader))
    database.gate.release()
    loader.close()
