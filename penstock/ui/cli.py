"""`penstock`: show the plan of a program, run it, look at its jobs and steer them, take over its job, or examine Spark.

    penstock plan examples/word_count.py --taskmanagers 2 --slots 3
    penstock plan examples/word_count.py --cluster left=2,2 --cluster right=2 --fail tm-1
    penstock run my_job.py -D parallelism.default=4 -- --input /data
    penstock run my_job.py --master local[5] --taskmanagers 2 --slots 2
    penstock run -d my_job.py
    penstock run my_job.py --from-savepoint /mnt/savepoints/savepoint-5f2c8a-0123456789ab
    penstock doctor --master spark://host:7077 -D parallelism.default=8
    penstock recover --cluster-id nightly --storage-dir /mnt/penstock
    penstock savepoint check my_job.py /mnt/savepoints/savepoint-5f2c8a-0123456789ab -- --input /data
    penstock savepoint inspect /mnt/savepoints/savepoint-5f2c8a-0123456789ab
    penstock savepoint dispose /mnt/savepoints/savepoint-5f2c8a-0123456789ab
    penstock list
    penstock savepoint 7e7cae1b /mnt/savepoints
    penstock cancel 7e7cae1b -m localhost:8081
    penstock logs 7e7cae1b -f
    penstock top
    penstock history /mnt/archive
    penstock session -d
    penstock run -m localhost:8081 my_job.py
    penstock session stop

Runs the program's own script as `python` would; only where its jobs go is decided here.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.hosting.checkpoints.reader import read_savepoint
from penstock.hosting.program.executor import ClusterExecutor
from penstock.hosting.spark import host as spark_host
from penstock.model.errors import ConfigurationError, PenstockError
from penstock.model.options.checkpoints import RecoveryOptions
from penstock.model.options.cluster import SparkOptions, TaskManagerOptions
from penstock.model.options.high_availability import HighAvailabilityOptions
from penstock.model.options.scheduling import SchedulingOptions
from penstock.model.states import JobStatus
from penstock.ui.detached import add_detached, check_attached, run_detached
from penstock.ui.doctor import doctor
from penstock.ui.history import add_history, serve_history
from penstock.ui.plan import PlanExecutor, PlanShown, add_shape, positive, shape_of
from penstock.ui.remote.commands import COMMANDS, add_commands, add_take, take_savepoint
from penstock.ui.run_in_session import add_session_place, in_session
from penstock.ui.savepoint_check import BAD_USE, check_savepoint
from penstock.ui.savepoints import render_rows, render_savepoint
from penstock.ui.session import add_session, session
from penstock.ui.top.command import add_top, top

_ACTIONS: Final = ("take", "inspect", "dispose", "check")
"""What `penstock savepoint` can do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Returns the exit code."""
    options = parsed(sys.argv[1:] if arguments is None else arguments)
    try:
        if options.command == "plan":
            shape = shape_of(options)
            parallelism = options.parallelism or shape.slots
            spark_host.override_executor(
                PlanExecutor(shape, parallelism, options.fail, _settings(options.define))
            )
        settings, conf = _command_line(options)
        if options.command == "run" and options.jobmanager is not None:
            settings = in_session(options, settings)
        elif options.command == "run" and not options.detached:
            check_attached(options)
        elif options.command == "run":
            return run_detached(options, conf)
        spark_host.set_command_line(settings, conf)
        command = _WITHOUT_PROGRAM.get(options.command)
        if command is not None:
            return _answered(command, options)
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


def _answered(command: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Run a command that runs no program, and return its exit code."""
    try:
        code = command(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Who reads, such as `head`, has seen enough. Python must not write the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The options. What follows `--` belongs to the program: argparse takes it only right behind the other positions."""
    place = list(arguments).index("--") if "--" in arguments else len(arguments)
    options = parser().parse_args(_with_action(arguments[:place]))
    behind = list(arguments[place + 1 :])
    if behind and not hasattr(options, "arguments"):
        parser().error(
            f"'{options.command}' runs no program, but got arguments for one: {' '.join(behind)}"
        )
    if behind:
        options.arguments = [*options.arguments, *behind]
    return options


def _with_action(arguments: Sequence[str]) -> Sequence[str]:
    """`savepoint JOB` is short for `savepoint take JOB`, as Flink has it."""
    first, *others = [*arguments, ""][:2]
    is_short = first == "savepoint" and others[0] not in {*_ACTIONS, "-h", "--help"}
    return ["savepoint", "take", *arguments[1:]] if is_short and len(arguments) > 1 else arguments


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
    add_commands(commands)
    add_top(commands)
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
    if options.action == "take":
        return take_savepoint(options)
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
    "history": lambda options: serve_history(options, _settings(options.define)),
    "session": session,
    "doctor": lambda _options: doctor(),
    "top": top,
    **COMMANDS,
}


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
