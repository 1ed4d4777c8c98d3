"""The arguments of `penstock`. Imports nothing of the engine: a command that only asks a driver is there at once."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from penstock import __version__
from penstock.engine.model.options.cluster import HighAvailabilityOptions
from penstock.engine.model.options.rest import HistoryServerOptions
from penstock.ops.cli.detached import add_detached
from penstock.ops.cli.remote.commands import add_commands, add_take
from penstock.ops.cli.remote.targets import add_place
from penstock.ops.cli.run_in_session import add_session_place
from penstock.ops.cli.top.command import add_top

# ---------------------------------------------------------------------- transaction arguments
# The arguments of `penstock transactions`. Imports nothing of the engine.


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


# ---------------------------------------------------------------------- arguments


_TITLE: Final = (
    "show the plan of a program, run it, look at its jobs and steer them, take over its job, or "
    "examine Spark."
)
_ACTIONS: Final = ("take", "inspect", "dispose", "check")
"""What `penstock savepoint` can do."""


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The options. What follows `--` belongs to the program: argparse takes it only right after the other positions."""
    place = list(arguments).index("--") if "--" in arguments else len(arguments)
    options = parser().parse_args(_with_action(arguments[:place]))
    rest = list(arguments[place + 1 :])
    if rest and not hasattr(options, "arguments"):
        parser().error(
            f"'{options.command}' runs no program, but got arguments for one: {' '.join(rest)}"
        )
    if rest:
        options.arguments = [*options.arguments, *rest]
    return options


def _with_action(arguments: Sequence[str]) -> Sequence[str]:
    """`savepoint JOB` is short for `savepoint take JOB`, as Flink has it."""
    first, *others = [*arguments, ""][:2]
    is_short = first == "savepoint" and others[0] not in {*_ACTIONS, "-h", "--help"}
    return ["savepoint", "take", *arguments[1:]] if is_short and len(arguments) > 1 else arguments


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="penstock", description=f"`penstock`: {_TITLE}")
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    shows = commands.add_parser(
        "plan", help="show job vertices, regions, sharing groups and the slot of each subtask"
    )
    runs = commands.add_parser("run", help="run a program")
    takes_over = _add_recovery(commands)
    examines = commands.add_parser(
        "doctor", help="check whether jobs can run on a Spark cluster, and which settings to change"
    )
    _add_savepoints(commands, runs)
    history = add_history(commands)
    serves = add_session(commands)
    for command in (runs, takes_over, examines, serves):
        command.add_argument(
            "--master", help="Spark's master, if the program starts no session itself"
        )
        command.add_argument(
            "--conf", action="append", default=[], metavar="KEY=VALUE", help="a Spark setting for "
            "that session"
        )  # fmt: skip
    for command in (shows, runs):
        command.add_argument("script", help="the program")
        command.add_argument("arguments", nargs="*", help="the program's own arguments, after --")
    for command in (shows, runs, takes_over, examines, history, serves):
        command.add_argument(
            "-D", dest="define", action="append", default=[], metavar="KEY=VALUE", help="an option"
        )
    runs.add_argument(
        "--taskmanagers",
        type=positive,
        help="how many TaskManagers, if the program sets no parallelism",
    )
    runs.add_argument("--slots", type=positive, help="slots of each TaskManager")
    runs.add_argument(
        "--live", action="store_true", help="show the progress as tables below the output"
    )
    add_detached(runs)
    add_session_place(runs)
    add_shape(shows)
    return parser


def _add_recovery(commands: Any) -> argparse.ArgumentParser:
    takes_over: argparse.ArgumentParser = commands.add_parser(
        "recover",
        help="take over the jobs of lost drivers (high availability), and wait for their end",
    )
    takes_over.add_argument(
        "--cluster-id", required=True, help=HighAvailabilityOptions.CLUSTER_ID.key
    )
    takes_over.add_argument(
        "--storage-dir", required=True, help=HighAvailabilityOptions.STORAGE_DIR.key
    )
    place = takes_over.add_mutually_exclusive_group()
    place.add_argument(
        "--zookeeper",
        metavar="HOST:PORT,...",
        help="high-availability.zookeeper.quorum, if jobs are stored in ZooKeeper",
    )
    place.add_argument(
        "--kubernetes", action="store_true", help="if jobs are stored in ConfigMaps of Kubernetes"
    )
    return takes_over


def _add_savepoints(commands: Any, runs: argparse.ArgumentParser) -> None:
    runs.add_argument(
        "-s", "--from-savepoint", metavar="DIR", help="begin with this savepoint or retained "
        "checkpoint"
    )  # fmt: skip
    runs.add_argument(
        "-n", "--allow-non-restored-state", action="store_true",
        help="drop state that no operator of the program claims",
    )  # fmt: skip
    runs.add_argument(
        "--claim",
        action="store_true",
        help="the job owns the savepoint, and removes it when it is no longer needed",
    )
    add_commands(commands)
    add_top(commands)
    add_transactions(commands)
    looks = commands.add_parser("savepoint", help="take a savepoint, look into one, or remove it")
    actions = looks.add_subparsers(dest="action", required=True)
    add_take(actions)
    inspects = actions.add_parser("inspect", help="show operators, states, sizes and key groups")
    disposes = actions.add_parser(
        "dispose",
        help="remove it, and the files that no other checkpoint needs; its job must not be running",
    )
    inspects.add_argument(
        "--state", nargs=2, metavar=("UID", "NAME"), help="show the rows of a keyed state"
    )
    inspects.add_argument("--rows", type=positive, default=20, help="how many rows (20)")
    checks = actions.add_parser(
        "check",
        help="show what a program would make of each state, without running a job; exit code 0: "
        "it would be restored, 1: refused, 2: it cannot be decided",
    )
    checks.add_argument("script", help="the program; it runs up to its first execute()")
    for action in (checks, inspects, disposes):
        action.add_argument("directory", help="the folder of the savepoint, a path or URI")
    checks.add_argument("arguments", nargs="*", help="the program's own arguments")
    checks.add_argument(
        "-n", "--allow-non-restored-state", action="store_true",
        help="as for run: state that no operator of the program claims is dropped",
    )  # fmt: skip
    checks.add_argument(
        "--no-open", action="store_true",
        help="do not open the functions with state, which calls their open(); then only "
        "operators and keys are checked",
    )  # fmt: skip
    checks.add_argument(
        "-D", dest="define", action="append", default=[], metavar="KEY=VALUE", help="an option"
    )


def add_history(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the command line."""
    shows: argparse.ArgumentParser = commands.add_parser(
        "history", help="serve the archives of jobs that have ended, until Ctrl-C"
    )
    shows.add_argument(
        "directories",
        nargs="*",
        metavar="DIR",
        help=f"a folder or URI of archives ({HistoryServerOptions.DIRS.key})",
    )
    shows.add_argument("--port", type=int, help="the port (8082); 0: any free one")
    return shows


def add_session(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the command line."""
    serves: argparse.ArgumentParser = commands.add_parser(
        "session",
        help="start a driver that takes jobs of other processes (`penstock run -m`), or stop one",
    )
    serves.add_argument("action", nargs="?", choices=["stop"], help="end the session that -m names")
    serves.add_argument(
        "-d", "--detached", action="store_true",
        help="in the background; return when the session answers",
    )  # fmt: skip
    serves.add_argument(
        "--log-file", metavar="FILE",
        help="with -d: where the session's output goes, a new file of this folder without it",
    )  # fmt: skip
    add_place(serves)
    return serves


def add_shape(shows: argparse.ArgumentParser) -> None:
    """Add the cluster that `plan` assumes."""
    shows.add_argument("--taskmanagers", type=positive, default=2, help="how many of them (2)")
    shows.add_argument("--slots", type=positive, default=1, help="slots of each TaskManager (1)")
    shows.add_argument(
        "--cluster", action="append", default=[], metavar="HOST=SLOTS,...",
        help="a host with the slots of each of its TaskManagers, for example left=3,3; replaces "
        "--taskmanagers and --slots",
    )  # fmt: skip
    shows.add_argument(
        "--fail", action="append", default=[], metavar="NAME",
        help="a TaskManager, for example tm-1, or a host that is lost: shows what moves where",
    )  # fmt: skip
    shows.add_argument(
        "--functions", action="store_true", help="show instead how each row function will run, and "
        "why not on columns"
    )  # fmt: skip
    shows.add_argument(
        "--parallelism", type=positive, help="parallelism, if the program sets none (all slots)"
    )


def positive(text: str) -> int:
    """Return a number of the command line. Raises ArgumentTypeError: it is below 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text}")
    return value
