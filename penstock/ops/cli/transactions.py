"""`penstock transactions`: what sinks of a dead job have left open, shown, committed or aborted.

It says what it will do before it does it, and asks. Source: kafka-transactions.sh; Flink has no such tool.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.engine.hosting.checkpoints.reader import Savepoint, read_savepoint
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.runtime.operators.sinks import COMMITTABLES
from penstock.ops.cli.remote.texts import complain, moment, show, shown
from penstock.ops.cli.savepoint_check import shown_bytes

KAFKA: Final = "Kafka"
SQL: Final = "SQL"


class Kept(NamedTuple):
    """What the checkpoint keeps for one sink: committables of one kind."""

    uid: str
    name: str
    kind: str
    committables: Sequence[Any]


class Plan(NamedTuple):
    """What a command will do. `lines`: the plan in words. `carry_out`: does it. `done`: printed after it."""

    lines: Sequence[str]
    carry_out: Callable[[], None]
    done: str


def transactions(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    if options.action == "list":
        return _list(options)
    make = _PLANS[options.action, SQL if options.sql else KAFKA]
    plan = make(options)
    if plan is None:
        show("nothing is left to do")
        return 0
    show("\n".join(plan.lines))
    if not options.yes and not _agrees():
        complain("nothing was done. Give --yes to do it without being asked.")
        return 1
    plan.carry_out()
    show(plan.done)
    return 0


def _agrees() -> bool:
    show("Do it? [y/N] ", end="")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


# ------------------------------------------------------------------ list


def _list(options: argparse.Namespace) -> int:
    if not (options.kafka or options.sql or options.savepoint):
        options.misuse("one of --kafka, --sql and --savepoint is required")
    answer: dict[str, list[dict[str, Any]]] = {}
    if options.kafka:
        answer["kafka"] = _kafka_rows(options)
    if options.sql:
        answer["staged"] = _staged_rows(options)
    if options.savepoint:
        answer["savepoint"] = [
            {"uid": one.uid, "name": one.name, "kind": one.kind, **row}
            for one in _kept(read_savepoint(options.savepoint), options.uid)
            for row in map(_OF_KIND[one.kind], one.committables)
        ]
    return shown(answer, options, "\n\n".join(_table(*one) for one in answer.items()))


def _kafka_rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    from penstock.connectors.kafka.transactions import list_transactions

    return [
        {
            "id": one.transactional_id,
            "state": one.state,
            "began-ms": one.began_ms,
            "timeout-ms": one.timeout_ms,
            "partitions": list(one.topics),
        }
        for one in list_transactions(_properties(options), options.prefix)
        if one.is_open or options.all
    ]


def _staged_rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    kept = set(_kept_ids(options))
    return [
        {
            "id": one.transaction_id,
            "job": one.job,
            "subtask": one.subtask,
            "checkpoint": one.checkpoint_id,
            "pieces": one.pieces,
            "began-ms": one.began_ms or -1,
            "committed": one.is_committed,
            **({"in-savepoint": one.transaction_id in kept} if options.savepoint else {}),
        }
        for one in _database(options).transactions(options.prefix)
    ]


def _table(kind: str, rows: Sequence[Mapping[str, Any]]) -> str:
    title = _TITLES[kind]
    if not rows:
        return f"{title}: none"
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [[name.removesuffix("-ms") for name in names]]
    lines += [[_cell(name, row.get(name)) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return "\n".join([f"{title}:", *texts])


def _cell(name: str, value: Any) -> str:
    if name == "began-ms":
        return moment(value)
    if name == "bytes" and value is not None:
        return shown_bytes(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value) or "-"
    return "-" if value is None else str(value)


_TITLES: Final = {
    "kafka": "transactions of Kafka",
    "staged": "staged rows of SQL",
    "savepoint": "kept in the savepoint for its sinks",
}


# ------------------------------------------------------------------ what a savepoint keeps


def _kept(savepoint: Savepoint, uid: str | None) -> list[Kept]:
    """Of all sinks, or of the one with this uid or name."""
    found = []
    for operator in savepoint.checkpoint.operators:
        if uid is not None and uid not in {operator.uid, operator.name}:
            continue
        lists = (one.name for state in operator.subtasks if state for one in state.lists)
        if COMMITTABLES not in lists:
            continue
        kept = [one for _, one in savepoint.list_state(operator.uid, COMMITTABLES)]
        by_kind: dict[str, list[Any]] = {}
        for one in kept:
            by_kind.setdefault(_kind_of(one), []).append(one)
        found += [Kept(operator.uid, operator.name, *item) for item in by_kind.items()]
    return found


def _kind_of(committable: Any) -> str:
    """By the form that the two sinks give their committables."""
    if isinstance(committable, tuple) and len(committable) == 5:
        return KAFKA
    is_sql = isinstance(committable, tuple) and len(committable) == 3
    return SQL if is_sql and isinstance(committable[1], int) else "another sink"


def _kafka_kept(committable: Any) -> dict[str, Any]:
    transactional_id, writer, topic, number, pieces = committable
    return {
        "id": f"{transactional_id}/{writer}/{number}",
        "topic": topic,
        "bytes": sum(map(len, pieces)),
    }


def _sql_kept(committable: Any) -> dict[str, Any]:
    name, pieces, columns = committable
    return {"id": name, "pieces": pieces, "columns": list(columns)}


_OF_KIND: Final[Mapping[str, Callable[[Any], dict[str, Any]]]] = {
    KAFKA: _kafka_kept,
    SQL: _sql_kept,
    "another sink": lambda one: {"id": type(one).__name__},
}


def _kept_ids(options: argparse.Namespace) -> list[str]:
    """Of SQL's transactions in the savepoint, if there is one."""
    if not options.savepoint:
        return []
    kept = _kept(read_savepoint(options.savepoint), options.uid)
    return [str(one[0]) for found in kept if found.kind == SQL for one in found.committables]


def _only(options: argparse.Namespace, kind: str) -> Kept | None:
    """What the savepoint keeps for one sink of this kind. Raises: ConfigurationError: several sinks keep something."""
    if not options.savepoint:
        options.misuse("--savepoint is required: only what a checkpoint keeps can be committed")
    found = [
        one for one in _kept(read_savepoint(options.savepoint), options.uid) if one.kind == kind
    ]
    if len(found) > 1:
        uids = ", ".join(f"{one.uid} ({one.name})" for one in found)
        raise ConfigurationError(
            f"{options.savepoint} keeps something for several sinks of {kind}: {uids}. Choose one "
            "with --uid."
        )
    return found[0] if found else None


# ------------------------------------------------------------------ commit, abort


def _commit_kafka(options: argparse.Namespace) -> Plan | None:
    from penstock.connectors.kafka.staging import KafkaCommitter

    kept = _only(options, KAFKA)
    if kept is None:
        return None
    committer = KafkaCommitter(_properties(options))

    def carry_out() -> None:
        left: Sequence[object] | None = list(kept.committables)
        try:
            while left:
                left = committer.commit(left)
        finally:
            committer.close()

    who = _shown_sink(kept)
    size = shown_bytes(sum(_kafka_kept(one)["bytes"] for one in kept.committables))
    lines = [
        f"Writes to Kafka at {options.kafka} what {options.savepoint} keeps for {who}: {size}.",
        *(f"  {_kafka_kept(one)['id']}, first topic {one[2]}" for one in kept.committables),
        "What is written already is found by its marker, and not written again.",
    ]
    return Plan(lines, carry_out, f"committed: {len(kept.committables)}")


def _shown_sink(kept: Kept) -> str:
    return f"the sink {kept.name} (uid {kept.uid})"


def _commit_sql(options: argparse.Namespace) -> Plan | None:
    from penstock.connectors.sql.tables import SqlDatabase, Target, Transaction

    if not options.table:
        options.misuse("--table is required with --sql")
    kept = _only(options, SQL)
    if kept is None:
        return None
    keys = tuple(filter(None, (options.key_columns or "").split(",")))
    staged, commits = options.own_tables
    names = {"staged_name": staged, "commits_name": commits}
    target = Target(options.sql, options.table, options.schema, key_columns=keys, **names)
    database = SqlDatabase(target, "transactions of SQL")
    transactions = [Transaction(str(a), int(b), tuple(c)) for a, b, c in kept.committables]
    by_key = f", replacing rows with the same {', '.join(keys)}" if keys else ""
    lines = [
        f"Moves staged rows to the table {str(target)!r} in {database.shown_url}{by_key}:",
        *(f"  {one.transaction_id}, {one.pieces} pieces" for one in transactions),
        f"That is what {options.savepoint} keeps for {_shown_sink(kept)}.",
        f"What is committed already stands in {commits!r}, and is not written again.",
    ]
    return Plan(lines, lambda: database.commit(transactions), f"committed: {len(transactions)}")


def _abort_kafka(options: argparse.Namespace) -> Plan | None:
    from penstock.connectors.kafka.transactions import abort_transaction, list_transactions

    properties = _properties(options)
    _need_choice(options)
    names = options.id or [
        one.transactional_id for one in list_transactions(properties, options.prefix) if one.is_open
    ]
    if not names:
        return None

    def carry_out() -> None:
        for name in names:
            abort_transaction(properties, name)

    lines = [
        f"Aborts open transactions in Kafka at {options.kafka}, and fences their producers off:",
        *(f"  {name}" for name in names),
        "Their records are never seen. A job that has them in a checkpoint writes them again.",
    ]
    return Plan(lines, carry_out, f"aborted: {len(names)}")


def _abort_sql(options: argparse.Namespace) -> Plan | None:
    _need_choice(options)
    database = _database(options)
    kept = set(_kept_ids(options))
    found = [
        one
        for one in database.transactions(options.prefix)
        if not options.id or one.transaction_id in options.id
    ]
    names = [one.transaction_id for one in found if one.transaction_id not in kept]
    if not names:
        return None
    lines = [
        f"Removes from {database.shown_url} the staged rows of {len(names)} transactions:",
        *(f"  {name}" for name in names),
        f"Left alone are {len(found) - len(names)} that {options.savepoint} keeps."
        if options.savepoint
        else "A checkpoint that keeps one of them cannot be restored any more; name it with "
        "--savepoint to leave those alone.",
    ]
    return Plan(lines, lambda: database.remove(names), f"removed: {len(names)}")


def _need_choice(options: argparse.Namespace) -> None:
    if not options.prefix and not options.id:
        options.misuse("--prefix or --id is required: other jobs may use the same servers")


_PLANS: Final[Mapping[tuple[str, str], Callable[[argparse.Namespace], Plan | None]]] = {
    ("commit", KAFKA): _commit_kafka,
    ("commit", SQL): _commit_sql,
    ("abort", KAFKA): _abort_kafka,
    ("abort", SQL): _abort_sql,
}


# ------------------------------------------------------------------ where


def _database(options: argparse.Namespace) -> Any:
    from penstock.connectors.sql.staged import StagedRows

    staged, commits = options.own_tables
    return StagedRows(options.sql, options.schema, (staged, commits))


def _properties(options: argparse.Namespace) -> dict[str, str]:
    """Raises: ConfigurationError: the file cannot be read, or a line is no property."""
    lines = []
    if options.command_config:
        try:
            lines = Path(options.command_config).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise ConfigurationError(f"--command-config cannot be read: {error}.") from error
    stripped = (line.strip() for line in lines)
    given = [line for line in stripped if line and line[0] not in "#!"]
    found = {"bootstrap.servers": options.kafka}
    for pair in [*given, *options.property]:
        key, sign, value = pair.partition("=")
        if not sign or not key.strip():
            raise ConfigurationError(
                f"expected KEY=VALUE as a property of Kafka's client, got {key!r}."
            )
        found[key.strip()] = value.strip()
    return found
