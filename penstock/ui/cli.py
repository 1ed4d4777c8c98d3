"""`penstock`: show the plan of a program, run it with settings from the command line, take over its job, or examine Spark.

    penstock plan examples/word_count.py --taskmanagers 2 --slots 3
    penstock plan examples/word_count.py --cluster left=2,2 --cluster right=2 --fail tm-1
    penstock run my_job.py -D parallelism.default=4 -- --input /data
    penstock run my_job.py --master local[5] --taskmanagers 2 --slots 2
    penstock run my_job.py --from-savepoint /mnt/savepoints/savepoint-5f2c8a-0123456789ab
    penstock doctor --master spark://host:7077 -D parallelism.default=8
    penstock recover --cluster-id nightly --storage-dir /mnt/penstock
    penstock savepoint check my_job.py /mnt/savepoints/savepoint-5f2c8a-0123456789ab -- --input /data
    penstock savepoint inspect /mnt/savepoints/savepoint-5f2c8a-0123456789ab
    penstock savepoint dispose /mnt/savepoints/savepoint-5f2c8a-0123456789ab

Runs the program's own script as `python` would; only where its jobs go is decided here.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.compiler.job_graph_builder import build_job_graph
from penstock.hosting.checkpoints.reader import read_savepoint
from penstock.hosting.jobmanager.handle import JobHandle
from penstock.hosting.program.executor import ClusterExecutor
from penstock.hosting.shipping.pickling import serialize
from penstock.hosting.spark import host as spark_host
from penstock.machines.books.job_settings import job_settings_of
from penstock.machines.planning.cluster_shape import ClusterShape, alike, parse_shape
from penstock.machines.planning.plan import render_loss
from penstock.machines.planning.planner import plan_loss, plan_on
from penstock.model.config import Settings
from penstock.model.errors import ConfigurationError, PenstockError
from penstock.model.graph.stream_graph import StreamGraph
from penstock.model.ids import JobId
from penstock.model.options.checkpoints import RecoveryOptions
from penstock.model.options.cluster import SparkOptions, TaskManagerOptions
from penstock.model.options.high_availability import HighAvailabilityOptions
from penstock.model.options.scheduling import SchedulingOptions
from penstock.model.program import ProgramSettings
from penstock.model.states import JobStatus
from penstock.ui.doctor import doctor
from penstock.ui.savepoint_check import BAD_USE, check_savepoint
from penstock.ui.savepoints import render_rows, render_savepoint

_PLAN_JOB_ID = JobId("0" * 32)


class PlanShown(BaseException):
    """Raised after the plan is printed, to end the program. A BaseException, so that programs do not catch it."""


class PlanExecutor:
    """`model.program.JobExecutor` that prints what would run where, and ends the program."""

    def __init__(
        self,
        shape: ClusterShape,
        parallelism: int,
        lost: Sequence[str],
        command_line: Mapping[str, str],
    ) -> None:
        """`lost`: TaskManagers or hosts; the plan also shows what happens when they are lost."""
        self._shape = shape
        self._parallelism = parallelism
        self._lost = lost
        self._command_line = command_line

    def serialize(self, value: object) -> bytes:
        return serialize(value)

    def submit(self, graph: StreamGraph, program: ProgramSettings) -> JobHandle:
        configured = program.configuration.get(SchedulingOptions.DEFAULT_PARALLELISM.key)
        graph.default_parallelism = int(configured) if configured else self._parallelism
        job_graph = build_job_graph(graph, _PLAN_JOB_ID, serialize)
        settings = job_settings_of(Settings(program.configuration, command_line=self._command_line))
        if self._lost:
            before, after = plan_loss(job_graph, self._shape, self._lost, settings)
            print(
                before.render(),
                render_loss(before, after, self._shape.named(self._lost)),
                sep="\n\n",
            )
        else:
            print(plan_on(job_graph, self._shape, settings).render())
        raise PlanShown


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Returns the exit code."""
    options = parsed(sys.argv[1:] if arguments is None else arguments)
    try:
        if options.command == "plan":
            shape = _shape(options)
            parallelism = options.parallelism or shape.slots
            spark_host.override_executor(
                PlanExecutor(shape, parallelism, options.fail, _settings(options.define))
            )
        spark_host.set_command_line(*_command_line(options))
        command = _WITHOUT_PROGRAM.get(options.command)
        if command is not None:
            return command(options)
        _run_script(options.script, options.arguments)
    except PlanShown:
        return 0
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return BAD_USE if getattr(options, "action", None) == "check" else 1
    finally:
        spark_host.override_executor(None)
        spark_host.set_command_line({})
    if options.command == "plan":
        print(
            f"penstock: {options.script} ended without running a job; call execute() in it",
            file=sys.stderr,
        )
        return 1
    return 0


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The options. What follows `--` belongs to the program: argparse takes it only right behind the other positions."""
    place = list(arguments).index("--") if "--" in arguments else len(arguments)
    options = parser().parse_args(arguments[:place])
    behind = list(arguments[place + 1 :])
    if behind and not hasattr(options, "arguments"):
        parser().error(
            f"'{options.command}' runs no program, but got arguments for one: {' '.join(behind)}"
        )
    if behind:
        options.arguments = [*options.arguments, *behind]
    return options


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock", description=__doc__.split("\n", maxsplit=1)[0]
    )
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
    for command in (runs, takes_over, examines):
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
    for command in (shows, runs, takes_over, examines):
        command.add_argument(
            "-D", dest="define", action="append", default=[], metavar="KEY=VALUE", help="an option"
        )
    runs.add_argument(
        "--taskmanagers",
        type=_positive,
        help="how many TaskManagers, if the program sets no parallelism",
    )
    runs.add_argument("--slots", type=_positive, help="slots of each TaskManager")
    shows.add_argument("--taskmanagers", type=_positive, default=2, help="how many of them (2)")
    shows.add_argument("--slots", type=_positive, default=1, help="slots of each TaskManager (1)")
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
        "--parallelism", type=_positive, help="parallelism, if the program sets none (all slots)"
    )
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
    takes_over.add_argument(
        "--zookeeper",
        metavar="HOST:PORT,...",
        help="high-availability.zookeeper.quorum, if jobs are stored in ZooKeeper",
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
    looks = commands.add_parser(
        "savepoint", help="look into a savepoint or checkpoint, or remove it"
    )
    actions = looks.add_subparsers(dest="action", required=True)
    inspects = actions.add_parser("inspect", help="show operators, states, sizes and key groups")
    disposes = actions.add_parser(
        "dispose",
        help="remove it, and the files that no other checkpoint needs; its job must not be running",
    )
    inspects.add_argument(
        "--state", nargs=2, metavar=("UID", "NAME"), help="show the rows of a keyed state"
    )
    inspects.add_argument("--rows", type=_positive, default=20, help="how many rows (20)")
    checks = actions.add_parser(
        "check",
        help="tell what a program would make of each state, without running a job; exit code 0: "
        "it would be restored, 1: refused, 2: it cannot be told",
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


def store_settings(options: argparse.Namespace) -> dict[str, str]:
    """Options that say where the jobs to recover are stored."""
    found = {
        HighAvailabilityOptions.TYPE.key: "FILE",
        HighAvailabilityOptions.CLUSTER_ID.key: options.cluster_id,
        HighAvailabilityOptions.STORAGE_DIR.key: options.storage_dir,
    }
    if options.zookeeper is not None:
        found[HighAvailabilityOptions.TYPE.key] = "ZOOKEEPER"
        found[HighAvailabilityOptions.ZOOKEEPER_QUORUM.key] = options.zookeeper
    return found


def _command_line(options: argparse.Namespace) -> tuple[dict[str, str], dict[str, str]]:
    """Penstock's settings, and Spark's own."""
    found = _cluster_size(options) | _settings(getattr(options, "define", ())) | _recovery(options)
    master = getattr(options, "master", None)
    if master is not None:
        found[SparkOptions.MASTER.key] = master
    return found, _settings(getattr(options, "conf", ()), "--conf")


def _cluster_size(options: argparse.Namespace) -> dict[str, str]:
    """Settings for the parallelism and the slots. A job gets as many TaskManagers as it needs: the parallelism of a program that
    sets none is the number of all slots.
    """
    if options.command != "run":
        return {}
    slots = {} if options.slots is None else {TaskManagerOptions.SLOTS.key: str(options.slots)}
    if options.taskmanagers is None:
        return slots
    return slots | {
        SchedulingOptions.DEFAULT_PARALLELISM.key: str(options.taskmanagers * (options.slots or 1))
    }


def _recover(options: argparse.Namespace) -> int:
    """Wait until all recovered jobs have ended. Returns 0 if there was a job and all have FINISHED, else 1."""
    jobs = ClusterExecutor(spark_host.SparkHost()).recover(store_settings(options))
    if not jobs:
        place = options.zookeeper or options.storage_dir
        print(f"penstock: found no job of {options.cluster_id!r} in {place}", file=sys.stderr)
    is_good = bool(jobs)
    for name, control in jobs:
        outcome = control.wait()
        print(f"penstock: job '{name}' ({control.job_id}): {outcome.status}", file=sys.stderr)
        if outcome.status is not JobStatus.FINISHED:
            is_good = False
            print(outcome.failure or "", file=sys.stderr)
    return 0 if is_good else 1


def _recovery(options: argparse.Namespace) -> dict[str, str]:
    """Settings for the savepoint that `run` starts from."""
    if getattr(options, "from_savepoint", None) is None:
        return {}
    found = {RecoveryOptions.PATH.key: options.from_savepoint}
    if options.allow_non_restored_state:
        found[RecoveryOptions.IGNORE_UNCLAIMED_STATE.key] = "true"
    if options.claim:
        found[RecoveryOptions.CLAIM_MODE.key] = "CLAIM"
    return found


def _savepoint(options: argparse.Namespace) -> int:
    if options.action == "check":
        return _check(options)
    savepoint = read_savepoint(options.directory)
    if options.action == "dispose":
        savepoint.dispose()
        print(f"removed {options.directory}")
    elif options.state is not None:
        uid, name = options.state
        print(render_rows(savepoint.keyed_state(uid, name), options.rows))
    else:
        print(render_savepoint(savepoint))
    return 0


def _check(options: argparse.Namespace) -> int:
    def complain(text: str) -> None:
        print(f"penstock: {text}", file=sys.stderr)

    command_line = _settings(options.define)
    if options.allow_non_restored_state:
        command_line[RecoveryOptions.IGNORE_UNCLAIMED_STATE.key] = "true"
    return check_savepoint(
        lambda: _run_script(options.script, options.arguments),
        options.directory,
        command_line,
        complain,
        opens=not options.no_open,
    )


_WITHOUT_PROGRAM: Final[Mapping[str, Callable[[argparse.Namespace], int]]] = {
    "savepoint": _savepoint,
    "recover": _recover,
    "doctor": lambda _options: doctor(),
}


def _shape(options: argparse.Namespace) -> ClusterShape:
    if options.cluster:
        return parse_shape(options.cluster)
    return alike(options.taskmanagers, options.slots)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text}")
    return value


def _settings(pairs: Sequence[str], flag: str = "-D") -> dict[str, str]:
    settings = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise ConfigurationError(f"{flag} takes KEY=VALUE, got {pair!r}")
        settings[key] = value
    return settings


def _run_script(script: str, arguments: Sequence[str]) -> None:
    if not Path(script).is_file():
        raise ConfigurationError(f"the program file {script!r} does not exist")
    former = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        sys.argv, sys.path[:] = former
