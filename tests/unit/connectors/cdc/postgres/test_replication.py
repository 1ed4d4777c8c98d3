"""The stream of a slot when its connection ends behind changes that it has brought."""

import struct

import psycopg

from penstock.connectors.cdc import StartupOptions
from penstock.connectors.cdc.postgres.source import LsnPosition, ReplicationStream
from tests.tools.connectors.changelogs import told
from tests.tools.waiting import wait_until


class _Context:
    def takes_checkpoints(self):
        return True

    def subtask(self):
        return 0

    def parallelism(self):
        return 1


def stream_of(database, publication=""):
    """The stream of a new job that takes no snapshot."""
    made = database.builder()
    made.publication_name(publication or database.slot)
    source = made.startup_options(StartupOptions.latest()).build()
    enumerator = source.create_enumerator(_Context())
    enumerator.start()
    split = enumerator._next()
    enumerator.close()
    return source.create_reader(_Context())._open_database().changes(split)


def test_changes_in_front_of_the_end_of_a_connection_are_given_once(orders):
    """The server is gone behind them in the same buffer, in each of several connections."""
    stream = stream_of(orders)
    sender = "FROM pg_stat_replication WHERE application_name = %s"
    name = f"penstock:{orders.slot}"
    records = []

    def poll():
        found = stream.poll()
        if found is not None:
            records.extend(found[0].values)

    def senders(condition, *values):
        return orders.rows(f"SELECT pid {sender} {condition}", name, *values)

    for first in range(100, 200, 20):
        while not senders(""):
            poll()
        orders.execute(f"INSERT INTO orders SELECT generate_series({first}, {first + 19}), 'n'")
        end = orders.end()
        wait_until(
            lambda end=end: senders("AND sent_lsn - '0/0'::pg_lsn >= %s", end), "it is not sent"
        )
        orders.rows(f"SELECT pg_terminate_backend(pid) {sender}", name)
        wait_until(lambda: not senders(""), "the server's process does not end")

    def has_all():
        poll()
        return len(records) >= 100

    wait_until(has_all, "changes are missing")
    stream.close()
    assert told(records) == [("+I", number, "n") for number in range(100, 200)]


def test_a_publication_may_have_any_name(orders):
    name = """odd "one", 'it'"""
    stream = stream_of(orders, name)
    try:
        stream.poll()
        orders.execute("DELETE FROM orders WHERE id = 1")
        records = []

        def is_read():
            found = stream.poll()
            records.extend(found[0].values if found else ())
            return records

        wait_until(is_read, "nothing comes")
    finally:
        stream.close()
        orders.execute("""DROP PUBLICATION "odd ""one"", 'it'" """)
    assert told(records) == [("-D", 1, "a")]


class _Wire:
    """A connection whose buffer has an insertion, and then what is no message of a stream."""

    def __init__(self, *messages, flush_fails=False):
        self.pgconn = self
        self._messages = list(messages)
        self._flush_fails = flush_fails

    def get_copy_data(self, _):
        if self._messages:
            data = self._messages.pop(0)
            return len(data), data
        raise psycopg.OperationalError("the stream has ended with an error")

    def put_copy_data(self, data):
        pass

    def flush(self):
        if self._flush_fails:
            raise psycopg.OperationalError("nothing can be told")

    def close(self):
        pass


class _Reader:
    """Each message is a change."""

    pieces = ()

    def changes(self, message):
        return [message.new[0]]


class _Maker:
    def batch(self, changes):
        return list(changes)


def given(*messages, flush_fails=False):
    """What a poll gives of such a connection: changes and position."""
    stream = ReplicationStream.__new__(ReplicationStream)
    stream.settings, stream._reader, stream._maker = None, _Reader(), _Maker()
    stream._position = stream._reported = LsnPosition(5)
    stream._safe, stream._to_skip, stream._is_inside, stream._next_status_s = 5, 0, True, 1e18
    stream._psycopg, stream._connection = psycopg, _Wire(*messages, flush_fails=flush_fails)
    lost = []
    stream._lose = lost.append
    changes, split = stream.poll()
    assert len(lost) == 1
    return changes, split.position


def insertion(value):
    row = b"I" + struct.pack("!iciH", 1, b"N", 0, 0)[:5] + struct.pack("!H", 1)
    return b"w" + bytes(24) + row + b"t" + struct.pack("!i", len(value)) + value


def test_changes_in_front_of_an_error_come_with_the_position_behind_them():
    assert given(insertion(b"a"), insertion(b"b")) == (["a", "b"], LsnPosition(5, 2))


def test_changes_in_front_of_an_answer_that_cannot_be_sent_come_with_the_position():
    keepalive = b"k" + struct.pack("!qqB", 9, 0, 1)
    assert given(insertion(b"a"), keepalive, flush_fails=True) == (["a"], LsnPosition(5, 1))
