"""What every store of jobs does. A module of tests imports all of it, and has a fixture `store`: with its files below `tmp_path`."""

import threading

import pytest

from penstock.engine.hosting.jobmanager.ha.store import LeaseTaken
from tests.tools.hosting.job_entries import ended, lease

KEY = "k" * 32


def test_what_is_put_in_comes_out(store):
    assert store.job_keys() == []
    entry = store.create(KEY, b"the job", lease("a"))
    assert store.job_keys() == [KEY]
    assert store.find(KEY) == entry
    assert store.read(entry, "job") == b"the job"
    assert store.read(entry, "result") is None
    assert store.lease(entry).token == entry.token == 1


def test_where_checkpoints_are_is_known_to_whoever_takes_over(store):
    entry = store.create(KEY, b"job", lease("a"))
    assert store.read(entry, "checkpoints") is None
    for pointers in (b"[1]", b"[1, 2]"):
        store.put(entry, "checkpoints", pointers)
    assert store.read(store.take(entry, lease("b")), "checkpoints") == b"[1, 2]"


def test_of_two_that_make_the_same_entry_one_does(store):
    entries = []
    barrier = threading.Barrier(2)

    def create(owner):
        barrier.wait()
        entries.append(store.create(KEY, owner.encode(), lease(owner)))

    threads = [threading.Thread(target=create, args=(owner,)) for owner in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [entry for entry in entries if entry is not None]
    assert store.read(winner, "job") == store.lease(winner).owner.encode()


def test_of_two_that_take_the_same_entry_one_gets_it(store):
    former = store.create(KEY, b"job", lease("a"))
    first, second = store.take(former, lease("b")), store.take(former, lease("c"))
    assert second is None
    assert (first.token, store.lease(first).owner) == (2, "b")
    assert store.read(first, "job") == b"job"


@pytest.mark.parametrize(
    "late",
    [
        lambda store, entry: store.renew(entry, lease("a")),
        lambda store, entry: store.put(entry, "result", b"mine"),
        lambda store, entry: store.put(entry, "checkpoints", b"mine"),
        lambda store, entry: store.put(entry, "requirements", b"mine"),
        lambda store, entry: store.remove(entry, ended(entry)),
    ],
    ids=["renewal", "result", "checkpoints", "requirements", "removal"],
)
def test_everything_of_a_stale_token_fails_and_changes_nothing(store, late):
    former = store.create(KEY, b"job", lease("a"))
    taken = store.take(former, lease("b"))
    with pytest.raises(LeaseTaken):
        late(store, former)
    assert store.find(KEY) == taken
    assert store.lease(taken).owner == "b"
    assert store.read(taken, "result") is None
    store.drop(former)
    assert store.find(KEY) == taken


def test_a_stale_token_is_stale_for_a_later_run_of_the_same_job_too(store):
    former = store.create(KEY, b"job", lease("a"))
    taken = store.take(former, lease("b"))
    store.remove(taken, ended(taken))
    again = store.create(KEY, b"job", lease("c"))
    assert again.token == 3
    with pytest.raises(LeaseTaken):
        store.put(former, "result", b"mine")
    with pytest.raises(LeaseTaken, match="driver c has taken it over"):
        store.renew(taken, lease("b"))


def test_a_result_that_was_recorded_is_seen_by_the_next_driver(store):
    former = store.create(KEY, b"job", lease("a"))
    store.put(former, "result", b"how it ends")
    assert store.read(store.take(former, lease("b")), "result") == b"how it ends"


def test_an_entry_that_ended_is_gone_and_its_end_stays_for_those_who_waited(store):
    entry = store.create(KEY, b"job", lease("a"))
    store.remove(entry, ended(entry))
    assert store.find(KEY) is None
    assert store.job_keys() == []
    assert store.lease(entry) is None
    assert store.ended(KEY) == ended(entry)


def test_what_was_put_last_is_read_and_what_was_before_is_gone(store, tmp_path):
    entry = store.create(KEY, b"job", lease("a"))
    for pointers in (b"1", b"2"):
        store.put(entry, "checkpoints", pointers)
    assert store.read(entry, "checkpoints") == b"2"
    assert len([path for path in tmp_path.rglob("*checkpoints*") if path.is_file()]) == 1


def test_what_users_asked_for_is_seen_by_the_next_driver(store):
    former = store.create(KEY, b"job", lease("a"))
    assert store.read(former, "requirements") is None
    for asked in (b"2", b"3"):
        store.put(former, "requirements", asked)
    assert store.read(store.take(former, lease("b")), "requirements") == b"3"


def test_an_entry_that_is_dropped_was_never_there(store):
    store.drop(store.create(KEY, b"job", lease("a")))
    assert store.job_keys() == []
    assert store.ended(KEY) is None
    assert store.create(KEY, b"job", lease("a")).token == 1
