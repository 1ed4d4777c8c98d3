"""`penstock transactions`: what a dead job has left is listed, committed from its savepoint, or aborted, and nothing else."""

import io
import json
import re

import pytest
from confluent_kafka import Producer

from penstock.common import Row, Types, WatermarkStrategy
from penstock.connectors.kafka import KafkaSink
from penstock.connectors.sql_sink import SqlSink
from penstock.datastream.connectors import Committer, DeliveryGuarantee
from penstock.ops.cli.cli import main
from tests.tools.brokers.fixtures import leave_no_kafka_client, own_kafka
from tests.tools.brokers.kafka import running_broker
from tests.tools.brokers.kafka_door import door
from tests.tools.brokers.kafka_topics import sink_builder, texts
from tests.tools.connectors.sql_tables import PAIRS, Db, context, put
from tests.tools.mariadb import mariadb_server
from tests.tools.postgres import postgres_server
from tests.tools.programs.checkpoint_programs import (
    HeldSource,
    Stage,
    Watcher,
    restarting_environment,
    wait_until_running,
)
from tests.tools.tls_cases import made_in

__all__ = ["leave_no_kafka_client", "own_kafka"]

HELD_AT = 3


class PutsOff(Committer):
    """As if the database or the brokers were away from the checkpoint on."""

    def commit(self, committables):
        return committables

    def abort(self, job_prefix):
        """The driver is killed before that."""


class DeadKafkaSink(KafkaSink):
    def create_committer(self):
        return PutsOff()


class DeadSqlSink(SqlSink):
    def create_committer(self):
        return PutsOff()


def dead_job(tmp_path, sinks):
    """The savepoint of a job that has written three records to each sink, and has committed none. `sinks`: by uid."""
    stage = Stage(f"dead {tmp_path}")
    env = restarting_environment(Watcher(), parallelism=1)
    source = HeldSource(stage.name, splits=1, count=HELD_AT + 1, hold=HELD_AT)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "held").uid("held")
    for uid, (sink, make, kind) in sinks.items():
        stream.map(make, kind).sink_to(sink).uid(uid).name(uid)
    client = env.execute_async(stage.name)
    wait_until_running(client)
    stage.wait_until_held(1)
    folder = client.trigger_savepoint(str(tmp_path / "savepoints")).result()
    client.cancel().result()
    stage.gate.set()
    return folder


def kafka_sink(servers):
    made = sink_builder(servers, "words", DeliveryGuarantee.EXACTLY_ONCE).build()
    return DeadKafkaSink(made.settings), lambda pair: f"w{pair[1]}", Types.STRING()


def sql_sink(url):
    made = SqlSink.builder().set_url(url).set_table("counts").build()
    return DeadSqlSink(made.settings), lambda pair: Row(name=f"n{pair[1]}", n=pair[1]), PAIRS


def called(capsys, *arguments, answer=""):
    """(exit code, what it prints, what it complains of)."""
    code = main(["transactions", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def asked_as(monkeypatch, answer):
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))


# ------------------------------------------------------------------ Kafka


def open_transaction(own_kafka, name, *words):
    """A producer that dies in the middle of one."""
    producer = Producer({"bootstrap.servers": own_kafka.servers, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for word in words:
        producer.produce("words", word)
    producer.flush(30)
    return producer


def test_open_transactions_of_kafka_are_listed_and_aborted_by_prefix(own_kafka, capsys):
    own_kafka.create("words")
    ours, others = (
        open_transaction(own_kafka, "ours-0-a", "x"),
        open_transaction(own_kafka, "theirs", "y"),
    )
    place = "--kafka", own_kafka.servers
    code, out, _ = called(capsys, "list", *place, "--prefix", "ours", "--json")
    (found,) = json.loads(out)["kafka"]
    assert (code, found["id"], found["state"], found["partitions"]) == (
        0,
        "ours-0-a",
        "Ongoing",
        ["words[0]"],
    )
    assert (found["began-ms"], found["timeout-ms"]) == (1_700_000_000_000, 60_000)
    assert "theirs" in called(capsys, "list", *place)[1]
    code, out, _ = called(capsys, "abort", *place, "--prefix", "ours", "--yes")
    assert (code, "ours-0-a" in out, "theirs" in out, "aborted: 1" in out) == (0, True, False, True)
    assert own_kafka.producers["theirs"].is_open
    assert not own_kafka.producers["ours-0-a"].is_open
    assert (
        called(capsys, "abort", *place, "--prefix", "ours", "--yes")[1] == "nothing is left to do\n"
    )
    assert "none" in called(capsys, "list", *place, "--prefix", "ours")[1]
    assert "Empty" in called(capsys, "list", *place, "--prefix", "ours", "--all")[1]
    code, out, _ = called(capsys, "abort", *place, "--id", "theirs", "--yes")
    assert (code, own_kafka.producers["theirs"].is_open) == (0, False)
    assert texts(own_kafka.servers, "words") == []
    for one in (ours, others):
        one.purge()


def test_what_it_will_do_is_said_before_and_only_done_on_yes(own_kafka, capsys, monkeypatch):
    own_kafka.create("words")
    producer = open_transaction(own_kafka, "ours", "x")
    abort = "abort", "--kafka", own_kafka.servers, "--prefix", "ours"
    for answer in ("", "n\n", "what?\n"):
        asked_as(monkeypatch, answer)
        code, out, complaint = called(capsys, *abort)
        assert (code, "Aborts open transactions" in out, "nothing was done" in complaint) == (
            1,
            True,
            True,
        )
        assert own_kafka.producers["ours"].is_open
    asked_as(monkeypatch, "y\n")
    assert called(capsys, *abort)[0] == 0
    assert not own_kafka.producers["ours"].is_open
    producer.purge()


def test_records_of_kafka_in_a_savepoint_are_committed_once(own_kafka, capsys, tmp_path):
    own_kafka.create("words")
    folder = dead_job(tmp_path, {"kafka": kafka_sink(own_kafka.servers)})
    code, out, _ = called(capsys, "list", "--savepoint", folder, "--json")
    (kept,) = json.loads(out)["savepoint"]
    assert (code, kept["uid"], kept["kind"], kept["topic"]) == (0, "kafka", "Kafka", "words")
    assert re.fullmatch("tests-[0-9a-f]{8}-0/[0-9a-f]{16}/1", kept["id"])
    commit = "commit", "--kafka", own_kafka.servers, "--savepoint", folder, "--yes"
    for _ in range(2):
        code, out, _ = called(capsys, *commit)
        assert (code, kept["id"] in out, "committed: 1" in out) == (0, True, True)
        assert texts(own_kafka.servers, "words") == ["w0", "w1", "w2"]


def test_brokers_with_tls_and_users_are_asked_with_properties_of_a_file(capsys, tmp_path):
    tls = made_in(tmp_path)
    users = {"job": 'a "secret"'}
    with running_broker(words=1) as broker, door(broker.servers, tls.server, users) as locks:
        direct, broker.servers = broker.servers, locks.address
        file = tmp_path / "client.properties"
        jaas = 'a.ScramLoginModule required username="job" password="{}";'
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            lines = (
                "# a comment",
                "security.protocol=SASL_SSL",
                f"ssl.truststore.location = {tls.ca}",
                f"sasl.mechanism={mechanism}",
                "sasl.jaas.config=" + jaas.format(r"a \"secret\""),
            )
            file.write_text("\n".join(lines))
            place = "--kafka", locks.address, "--command-config", file
            assert called(capsys, "list", *place) == (0, "transactions of Kafka: none\n", "")
        plain = "sasl.jaas.config=" + jaas.replace("Scram", "Plain").format("wrong")
        more = "--property", "sasl.mechanism=PLAIN", "--property", plain
        code, _, complaint = called(capsys, "list", *place, *more)
        assert (code, "refuses the login" in complaint) == (1, True)
        wrong = "--property", f"ssl.truststore.location={tls.other_ca}"
        code, _, complaint = called(capsys, "list", *place, *wrong)
        assert (code, "certificate is not trusted" in complaint) == (1, True)
        broker.servers = direct


# ------------------------------------------------------------------ SQL


@pytest.fixture(scope="module")
def postgres_url():
    with postgres_server() as found:
        yield found


@pytest.fixture(scope="module")
def mariadb_url():
    with mariadb_server() as found:
        yield found


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.server),
        pytest.param("mariadb", marks=pytest.mark.server),
    ]
)
def url(request, tmp_path):
    """Of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    return request.getfixturevalue(f"{request.param}_url")


def test_staged_rows_are_listed_committed_from_the_savepoint_and_removed(url, capsys, tmp_path):
    db = Db(url)
    place = "--sql", url
    assert called(capsys, "list", *place)[2].count("no SqlSink has written there") == 1
    folder = dead_job(tmp_path, {"sql": sql_sink(url)})
    writer = db.sink().create_writer(context(job="a killed one"))
    put(writer, ("lost", 1))
    writer.prepare_checkpoint(5)
    writer.close()
    kept, lost = json.loads(called(capsys, "list", *place, "--savepoint", folder, "--json")[1])[
        "staged"
    ]
    assert (kept["in-savepoint"], kept["committed"], kept["pieces"]) == (True, False, 1)
    assert (lost["in-savepoint"], lost["checkpoint"], lost["job"]) == (False, 5, "a killed one")
    abort = "abort", *place, "--savepoint", folder, "--prefix", kept["job"][:2], "--yes"
    code, out, _ = called(capsys, *abort)
    assert (code, out) == (0, "nothing is left to do\n"), "the savepoint keeps it"
    commit = "commit", *place, "--savepoint", folder, "--table", "counts", "--yes"
    for _ in range(2):
        code, out, _ = called(capsys, *commit)
        assert (code, kept["id"] in out, "committed: 1" in out) == (0, True, True)
        assert db.rows() == [("n0", 0), ("n1", 1), ("n2", 2)]
    code, out, _ = called(capsys, "abort", *place, "--prefix", "a killed", "--yes")
    assert (code, lost["id"] in out, "removed: 1" in out) == (0, True, True)
    assert called(capsys, "list", *place)[1] == "staged rows of SQL: none\n"
    assert len(db.rows()) == 3


# ------------------------------------------------------------------ the savepoint, and wrong use


def test_of_several_sinks_one_is_chosen(own_kafka, capsys, tmp_path):
    own_kafka.create("words")
    sinks = {uid: kafka_sink(own_kafka.servers) for uid in ("left", "right")}
    folder = dead_job(tmp_path, sinks)
    commit = "commit", "--kafka", own_kafka.servers, "--savepoint", folder, "--yes"
    code, _, complaint = called(capsys, *commit)
    assert (code, "several sinks of Kafka: " in complaint) == (1, True)
    assert all(uid in complaint for uid in sinks), complaint
    assert texts(own_kafka.servers, "words") == []
    assert called(capsys, *commit, "--uid", "right")[0] == 0
    assert texts(own_kafka.servers, "words") == ["w0", "w1", "w2"]
    sql = "commit", "--sql", f"sqlite:///{tmp_path}/x.db", "--table", "t", "--savepoint", folder
    assert called(capsys, *sql)[:2] == (0, "nothing is left to do\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("list",), "one of --kafka, --sql and --savepoint is required"),
        (("commit", "--kafka", "a:1"), "--savepoint is required"),
        (("commit", "--sql", "sqlite:///x", "--savepoint", "d"), "--table is required"),
        (("abort", "--kafka", "a:1"), "--prefix or --id is required"),
        (("abort", "--sql", "sqlite:////x"), "--prefix or --id is required"),
        (("abort",), "one of the arguments --kafka --sql is required"),
        (("list", "--kafka", "a:1", "--sql", "b"), "not allowed with"),
    ],
)
def test_a_wrong_command_line_ends_with_2(arguments, text, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["transactions", *arguments])
    assert (ended.value.code, text in capsys.readouterr().err) == (2, True)


def test_what_cannot_be_asked_ends_with_1(capsys, tmp_path):
    for arguments, text in (
        (("list", "--kafka", "127.0.0.1:1"), "127.0.0.1:1 does not answer"),
        (("list", "--kafka", "nonsense:"), "expected host:port"),
        (("list", "--kafka", "a:1", "--property", "x"), "expected KEY=VALUE"),
        (("list", "--kafka", "a:1", "--command-config", "/no/such"), "cannot be read"),
        (
            ("list", "--kafka", "127.0.0.1:1", "--property", "security.protocol=TLS"),
            "expected one of plaintext, ssl, sasl_plaintext, sasl_ssl as security.protocol",
        ),
        (
            ("list", "--kafka", "127.0.0.1:1", "--property", "default.api.timeout.ms=soon"),
            "'default.api.timeout.ms' must be a number",
        ),
        (("list", "--savepoint", tmp_path), "savepoint"),
    ):
        code, out, complaint = called(capsys, *arguments)
        assert (code, out, text in complaint) == (1, "", True), complaint
