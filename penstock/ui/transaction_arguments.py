"""The arguments of `penstock transactions`. Imports nothing of the engine."""

from __future__ import annotations

import argparse
from typing import Any


def add_transactions(commands: Any) -> None:
    """Add the command to the command line."""
    looks = commands.add_parser(
        "transactions", help="list, commit or abort what the sinks of a dead job have left open"
    )
    actions = looks.add_subparsers(dest="action", required=True)
    lists = actions.add_parser(
        "list",
        help="show open transactions of Kafka, staged rows of SQL, or what a savepoint keeps",
    )
    commits = actions.add_parser(
        "commit", help="write what a savepoint or checkpoint keeps for its sink, if it is not "
        "written yet; the job must not be running",
    )  # fmt: skip
    aborts = actions.add_parser(
        "abort", help="abort open transactions of Kafka, or remove staged rows of SQL; the job "
        "must not be running",
    )  # fmt: skip
    for action in (lists, commits, aborts):
        _add_places(action, is_required=action is not lists)
    lists.add_argument(
        "--all", action="store_true", help="also transactional ids without an open transaction"
    )
    lists.add_argument("--json", action="store_true", help="answer with JSON")
    lists.set_defaults(misuse=lists.error)
    commits.add_argument("--table", help="with --sql: the sink's table")
    commits.add_argument(
        "--key-columns", metavar="NAME,...", help="with --sql: the sink's key columns"
    )
    commits.set_defaults(misuse=commits.error)
    aborts.add_argument(
        "--id", action="append", default=[], metavar="ID", help="this transaction alone"
    )
    aborts.set_defaults(misuse=aborts.error)
    for action in (commits, aborts):
        action.add_argument("--yes", action="store_true", help="do it without asking")


def _add_places(action: argparse.ArgumentParser, *, is_required: bool) -> None:
    servers = action.add_mutually_exclusive_group(required=is_required)
    servers.add_argument("--kafka", metavar="HOST:PORT,...", help="the brokers (bootstrap.servers)")
    servers.add_argument("--sql", metavar="URL", help="the database, as for SqlSink")
    action.add_argument(
        "--property", action="append", default=[], metavar="KEY=VALUE",
        help="with --kafka: a property of the client, such as security.protocol=SSL",
    )  # fmt: skip
    action.add_argument(
        "--command-config", metavar="FILE", help="with --kafka: a file of such properties, one a "
        "line, for passwords",
    )  # fmt: skip
    action.add_argument("--schema", help="with --sql: the schema of the sink's own tables")
    action.add_argument(
        "--own-tables", nargs=2, default=("penstock_staged", "penstock_commits"),
        metavar=("STAGED", "COMMITS"), help="with --sql: their names, if the sink names them",
    )  # fmt: skip
    action.add_argument(
        "--prefix", default="", help="only transactional ids of Kafka, or jobs of staged rows, "
        "that begin like this",
    )  # fmt: skip
    action.add_argument(
        "--savepoint", metavar="DIR", help="a savepoint or kept checkpoint, a path or URI"
    )
    action.add_argument(
        "--uid", help="of the sink in the savepoint, if several sinks keep something"
    )
