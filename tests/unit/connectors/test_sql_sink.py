"""SqlSink on SQLite and on a real PostgreSQL server: committed once, whatever is repeated or dies."""

import datetime as dt
import pickle
import random
from threading import Barrier, Thread

import pytest
import sqlalchemy as sa

from penstock.common import Row, RowKind
from penstock.connectors import sql_sink
from penstock.connectors.sql import tables
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ExternalError, RefusedForGood
from penstock.engine.runtime.elements import RowBatch
from tests.tools.connectors.sql_tables import Db, context, put, stage

# ------------------------------------------------------------------ exactly once


def test_nothing_is_visible_before_the_commit_and_everything_after(url):
    db = Db(url)
    sink = db.sink(set_batch_size=2)
    writer = sink.create_writer(context())
    put(writer, ("a", 1), ("b", 2), ("c", 3))
    prepared = writer.prepare_checkpoint(1)
    assert db.rows() == []
    assert db.staged() == [(0, 0, 1), (0, 0, 1)]
    assert sink.create_committer().commit(prepared) is None
    assert db.rows() == [("a", 1), ("b", 2), ("c", 3)]
    assert db.staged() == []
    writer.close()
    assert db.rows() == [("a", 1), ("b", 2), ("c", 3)]


def test_a_repeated_commit_adds_nothing_also_from_another_process_and_pickled(url):
    db = Db(url)
    sink = pickle.loads(pickle.dumps(db.sink()))
    writer = sink.create_writer(context())
    put(writer, ("a", 1))
    first = writer.prepare_checkpoint(1)
    put(writer, ("b", 2))
    second = writer.prepare_checkpoint(2)
    sink.create_committer().commit(first)
    committer = db.sink().create_committer()
    for _ in range(3):
        committer.commit(pickle.loads(pickle.dumps([*first, *second])))
    assert db.rows() == [("a", 1), ("b", 2)]


def test_a_checkpoint_without_rows_prepares_nothing(url):
    db = Db(url)
    writer = db.sink().create_writer(context())
    assert list(writer.prepare_checkpoint(1)) == []
    assert list(writer.prepare_commit()) == []
    assert db.staged() == []


def test_two_committers_of_the_same_transaction_at_once_commit_it_once(url):
    db = Db(url)
    sink = db.sink()
    for number in range(5):
        writer = sink.create_writer(context())
        put(writer, ("a", number))
        prepared = writer.prepare_checkpoint(number)
        together = Barrier(2)

        def commit(prepared=prepared, together=together):
            committer = sink.create_committer()
            together.wait()
            committer.commit(prepared)

        threads = [Thread(target=commit) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert db.rows() == [("a", number) for number in range(5)]
    assert db.staged() == []


def test_all_transactions_of_one_commit_become_visible_together_or_not_at_all(url):
    db = Db(url, "CREATE TABLE counts (name VARCHAR(80) UNIQUE, n INTEGER)")
    sink = db.sink()
    prepared = []
    for subtask, name in enumerate(["a", "b", "a"]):
        writer = sink.create_writer(context(subtask=subtask, parallelism=3))
        put(writer, (name, subtask))
        prepared += writer.prepare_commit()
    with pytest.raises(
        ExternalError, match=r"cannot commit for the table 'counts'.*(UNIQUE|unique|Duplicate)"
    ):
        sink.create_committer().commit(prepared)
    assert db.rows() == []
    sink.create_committer().commit(prepared[:2])
    assert db.rows() == [("a", 0), ("b", 1)]


def test_what_is_more_than_fits_into_memory_is_staged_before_the_barrier(url, monkeypatch):
    monkeypatch.setattr(sql_sink, "BYTES_IN_MEMORY", 1)
    monkeypatch.setattr(tables, "BYTES_AT_ONCE", 1)
    db = Db(url)
    sink = db.sink(set_batch_size=2)
    writer = sink.create_writer(context())
    rows = [(f"name {n}", n) for n in range(7)]
    put(writer, *rows[:3])
    assert db.staged() == [(0, 0, None)]
    put(writer, *rows[3:])
    assert db.staged() == [(0, 0, None)] * 3
    prepared = writer.prepare_checkpoint(4)
    assert db.staged() == [(0, 0, 4)] * 4
    sink.create_committer().commit(prepared)
    assert db.rows() == rows
    put(writer, *rows[:2])
    sink.create_committer().commit(writer.prepare_checkpoint(5))
    assert db.rows() == sorted([*rows, *rows[:2]])


def test_a_piece_may_have_more_than_64_kib(url):
    """A BLOB of MariaDB has not."""
    db = Db(url)
    sink = db.sink()
    writer = sink.create_writer(context())
    made = random.Random(7)
    rows = [(made.randbytes(39).hex(), n) for n in range(4000)]
    put(writer, *rows)
    sink.create_committer().commit(writer.prepare_checkpoint(1))
    assert db.rows() == sorted(rows)


def test_full_pieces_wait_for_the_barrier_and_go_in_one_transaction(url):
    db = Db(url)
    writer = db.sink(set_batch_size=1).create_writer(context())
    put(writer, ("a", 1), ("b", 2))
    assert db.staged() == []
    began = []
    sa.event.listen(writer._database.engine, "begin", began.append)
    writer.prepare_checkpoint(1)
    assert len(began) == 1
    assert db.staged() == [(0, 0, 1)] * 2


def test_rows_that_are_neither_staged_nor_committed_are_an_error(url):
    db = Db(url)
    sink = db.sink(set_batch_size=1)
    writer = sink.create_writer(context())
    put(writer, ("a", 1), ("b", 2))
    prepared = writer.prepare_checkpoint(1)
    db.run("DELETE FROM penstock_staged WHERE piece = 1")
    with pytest.raises(ExternalError, match="is not in 'penstock_commits', and not all of its"):
        sink.create_committer().commit(prepared)
    assert db.rows() == []
    assert db.run("SELECT * FROM penstock_commits") == []


def test_a_new_attempt_drops_what_is_never_committed_and_keeps_the_rest(url):
    db = Db(url)
    sink = db.sink()
    old = [sink.create_writer(context(subtask=s, parallelism=3)) for s in range(3)]
    for writer in old:
        put(writer, ("sealed 1", 1))
    prepared = [writer.prepare_checkpoint(1)[0] for writer in old]
    for writer in old:
        put(writer, ("sealed 2", 2))
        writer.prepare_checkpoint(2)
        put(writer, ("begun", 3))
        stage(writer)
    other = sink.create_writer(context(job="job-2"))
    put(other, ("other job", 4))
    stage(other)
    strange = db.sink().create_writer(context())
    put(strange, ("other sink", 5))
    stage(strange)
    assert len(db.staged()) == 3 + 3 + 3 + 1 + 1
    # Restored from checkpoint 1 at parallelism 2: subtask 0 stands for the old 0 and 2.
    new = sink.create_writer(context(subtask=0, parallelism=2, attempt=1, restored=1))
    assert db.staged() == sorted(
        [(0, 0, 1), (1, 0, 1), (2, 0, 1), (1, 0, 2), (1, 0, None), (0, 0, None), (0, 0, None)],
        key=str,
    )
    sink.create_writer(context(subtask=1, parallelism=2, attempt=1, restored=1))
    sink.create_committer().commit(prepared)
    assert db.rows() == [("sealed 1", 1)] * 3
    assert db.staged() == [(0, 0, None), (0, 0, None)]
    put(new, ("new", 6))
    sink.create_committer().commit(new.prepare_checkpoint(3))
    assert len(db.rows()) == 4


def test_an_attempt_that_begins_with_nothing_drops_all_of_its_older_ones(url):
    db = Db(url)
    sink = db.sink()
    writer = sink.create_writer(context())
    put(writer, ("a", 1))
    writer.prepare_checkpoint(1)
    sink.create_writer(context(attempt=1))
    assert db.staged() == []


def test_abort_drops_what_was_begun_and_keeps_what_a_checkpoint_has(url):
    db = Db(url)
    sink = db.sink()
    writer = sink.create_writer(context())
    put(writer, ("a", 1))
    prepared = writer.prepare_checkpoint(7)
    put(writer, ("b", 2))
    stage(writer)
    sink.create_committer().abort("job-2")
    assert len(db.staged()) == 2
    sink.create_committer().abort("job-")
    assert db.staged() == [(0, 0, 7)]
    sink.create_committer().commit(prepared)
    assert db.rows() == [("a", 1)]


def test_close_leaves_the_rest_to_the_next_attempt(url):
    db = Db(url)
    sink = db.sink()
    writer = sink.create_writer(context())
    put(writer, ("a", 1))
    writer.prepare_checkpoint(1)
    put(writer, ("b", 2))
    stage(writer)
    assert len(db.staged()) == 2
    writer.close()
    sink.create_writer(context(attempt=1, restored=1))
    assert db.staged() == [(0, 0, 1)]


def test_the_first_subtask_forgets_commits_that_are_older_than_the_retention(url):
    db = Db(url)
    sink = db.sink(set_commit_retention=dt.timedelta(days=1))
    for transaction, age_days in (("old", 2), ("young", 0)):
        at_ms = int((dt.datetime.now(dt.UTC) - dt.timedelta(days=age_days)).timestamp() * 1000)
        db.run(f"INSERT INTO penstock_commits VALUES ('{transaction}', {at_ms})")
    sink.create_writer(context(subtask=1, parallelism=2))
    assert len(db.run("SELECT * FROM penstock_commits")) == 2
    sink.create_writer(context())
    assert db.run("SELECT transaction_id FROM penstock_commits") == [("young",)]


def test_what_a_killed_driver_has_staged_goes_after_the_retention(url, monkeypatch):
    """Nobody aborts it, and no later job knows its name. What is younger may belong to a checkpoint that is restored."""
    db = Db(url)
    days = iter([2, 0])
    now_ms = tables.now_ms

    for name in ("old", "young"):
        at_ms = now_ms() - next(days) * 24 * 3600 * 1000
        monkeypatch.setattr(tables, "now_ms", lambda at_ms=at_ms: at_ms)
        killed = db.sink().create_writer(context(job=name))
        put(killed, (name, 1))
        killed.prepare_checkpoint(1)
        put(killed, (name, 2))
        stage(killed)
    monkeypatch.setattr(tables, "now_ms", now_ms)
    sink = db.sink(set_commit_retention=dt.timedelta(days=1))
    sink.create_writer(context(job="new", subtask=1, parallelism=2))
    assert len(db.staged()) == 4
    sink.create_writer(context(job="new"))
    jobs = db.run("SELECT DISTINCT job FROM penstock_staged")
    assert jobs == [("young",)]
    db.sink(set_commit_retention=None).create_writer(context(job="newer"))
    assert len(db.staged()) == 2


def test_a_writer_that_is_older_than_the_retention_keeps_what_it_stages(url, monkeypatch):
    db = Db(url)
    now_ms = tables.now_ms
    monkeypatch.setattr(tables, "now_ms", lambda: now_ms() - 3 * 24 * 3600 * 1000)
    sink = db.sink(set_commit_retention=dt.timedelta(days=1))
    writer = sink.create_writer(context(job="long"))
    monkeypatch.setattr(tables, "now_ms", now_ms)
    put(writer, ("a", 1))
    prepared = writer.prepare_checkpoint(1)
    db.sink(set_commit_retention=dt.timedelta(days=1)).create_writer(context(job="other"))
    sink.create_committer().commit(prepared)
    assert db.rows() == [("a", 1)]


def test_a_database_that_is_away_puts_the_commit_off_a_few_times(url, tmp_path):
    db = Db(url)
    sink = db.sink(set_max_retries=2)
    writer = sink.create_writer(context())
    put(writer, ("a", 1))
    prepared = writer.prepare_checkpoint(1)
    committer = sink.create_committer()
    away = sa.exc.OperationalError("COMMIT", {}, OSError("gone"))
    database = committer._opened()
    is_there = database._commit

    def is_away(transactions):
        raise away

    database._commit = is_away
    assert committer.commit(prepared) == prepared
    assert committer.commit(prepared) == prepared
    with pytest.raises(ExternalError, match="gone"):
        committer.commit(prepared)
    database._commit = is_there
    assert committer.commit(prepared) is None
    database._commit = is_away
    assert committer.commit(prepared) == prepared


class Cancel(BaseException):
    """Raised in the middle of anything, as a task's interrupt is."""


def test_what_a_cancel_interrupts_keeps_no_lock(url):
    db = Db(url)
    sink = db.sink(set_batch_size=1)
    writer = sink.create_writer(context())
    put(writer, ("a", 1), ("b", 2))
    prepared = writer.prepare_checkpoint(1)
    caught = []
    # The note, the first piece, the second one, the end of them. Rows go past these events.
    for statements in range(1, 5):
        committer = sink.create_committer()
        left = [statements]

        def interrupt(*_, left=left):
            left[0] -= 1
            if not left[0]:
                raise Cancel

        _ = committer._opened().table
        sa.event.listen(committer._opened().engine, "after_cursor_execute", interrupt)
        with pytest.raises(Cancel) as interrupted:
            committer.commit(prepared)
        caught.append(interrupted)  # and with it the cursor
        assert db.rows() == []
    at_once = {"connect_args": {"timeout": 0}} if url.startswith("sqlite") else {}
    db.sink(set_engine_options=at_once).create_committer().commit(prepared)
    assert db.rows() == [("a", 1), ("b", 2)]


# ------------------------------------------------------------------ replacing by key

KEYED = "CREATE TABLE counts (name VARCHAR(80) PRIMARY KEY, n INTEGER)"


def change(kind, name, n):
    return Row.of_kind(kind, name=name, n=n)


def test_a_row_replaces_the_one_with_its_key_and_a_delete_removes_it(url):
    db = Db(url, KEYED)
    sink = db.sink(set_key_columns=["name"])
    writer = sink.create_writer(context())
    writer.write(
        RowBatch([
            change(RowKind.INSERT, "a", 1),
            change(RowKind.INSERT, "b", 1),
            change(RowKind.UPDATE_BEFORE, "a", 1),
            change(RowKind.UPDATE_AFTER, "a", 2),
            change(RowKind.INSERT, "c", 1),
            change(RowKind.DELETE, "b", 1),
            change(RowKind.DELETE, "c", 1),
            change(RowKind.INSERT, "c", 3),
        ]),
        0,
    )
    sink.create_committer().commit(writer.prepare_checkpoint(1))
    assert db.rows() == [("a", 2), ("c", 3)]
    writer.write(RowBatch([change(RowKind.DELETE, "a", 2), change(RowKind.INSERT, "c", 4)]), 0)
    sink.create_committer().commit(writer.prepare_checkpoint(2))
    assert db.rows() == [("c", 4)]


@pytest.mark.parametrize("size", [1, 2, 100])
def test_the_last_row_of_a_key_counts_within_a_piece_and_across_pieces(url, size):
    db = Db(url, KEYED)
    sink = db.sink(set_key_columns=["name"], set_batch_size=size)
    writer = sink.create_writer(context())
    put(writer, ("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5), ("a", 6))
    sink.create_committer().commit(writer.prepare_checkpoint(1))
    assert db.rows() == [("a", 6), ("b", 5), ("c", 4)]
    put(writer, ("c", 7), ("d", 8))
    sink.create_committer().commit(writer.prepare_checkpoint(2))
    assert db.rows() == [("a", 6), ("b", 5), ("c", 7), ("d", 8)]


def test_a_row_by_key_that_the_database_refuses_is_named(url):
    db = Db(url, "CREATE TABLE counts (name VARCHAR(80) PRIMARY KEY, n INTEGER NOT NULL)")
    sink = db.sink(set_key_columns=["name"], set_batch_size=2)
    writer = sink.create_writer(context())
    put(writer, ("a", 1), ("b", 2), ("c", 3), ("d", None))
    with pytest.raises(RefusedForGood, match=r"\{'name': 'd', 'n': None\}"):
        sink.create_committer().commit(writer.prepare_checkpoint(1))
    assert db.rows() == []


def test_a_table_of_nothing_but_keys(url):
    db = Db(url, "CREATE TABLE counts (name VARCHAR(80), n INTEGER, PRIMARY KEY (name, n))")
    sink = db.sink(set_key_columns=["name", "n"])
    writer = sink.create_writer(context())
    put(writer, ("a", 1), ("a", 1), ("a", 2))
    sink.create_committer().commit(writer.prepare_checkpoint(1))
    assert db.rows() == [("a", 1), ("a", 2)]


def test_at_least_once_writes_before_the_barrier_and_replays_replace(url):
    db = Db(url, KEYED)
    sink = db.sink(
        set_key_columns=["name"],
        set_delivery_guarantee=DeliveryGuarantee.AT_LEAST_ONCE,
        set_batch_size=2,
    )
    assert sink.create_committer() is None
    writer = sink.create_writer(context())
    put(writer, ("a", 1))
    assert db.rows() == []
    put(writer, ("b", 1), ("a", 2))
    assert db.rows() == [("a", 1), ("b", 1)]
    assert list(writer.prepare_commit()) == []
    assert db.rows() == [("a", 2), ("b", 1)]
    again = sink.create_writer(context(attempt=1))
    put(again, ("a", 1), ("b", 1), ("a", 2))
    again.prepare_commit()
    assert db.rows() == [("a", 2), ("b", 1)]
    assert db.staged() == []


def test_at_least_once_writes_rows_that_are_old_enough(url, monkeypatch):
    db = Db(url)
    now = [100.0]
    monkeypatch.setattr("penstock.connectors.sql_sink.monotonic", lambda: now[0])
    sink = db.sink(set_delivery_guarantee=DeliveryGuarantee.NONE, set_batch_interval_ms=500)
    writer = sink.create_writer(context())
    put(writer, ("a", 1))
    assert db.rows() == []
    now[0] += 0.5
    put(writer, ("b", 1))
    assert db.rows() == [("a", 1), ("b", 1)]


def test_changes_for_a_table_without_keys_are_refused(url):
    writer = Db(url).sink().create_writer(context())
    with pytest.raises(TypeError, match=r"kind -D: \('a', 1\).*set_key_columns"):
        writer.write(RowBatch([change(RowKind.DELETE, "a", 1)]), 0)
