"""The commands that need the engine: those that run a program, read a savepoint, or begin a driver."""

from __future__ import annotations

import argparse
import contextlib
import json
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO

from penstock.engine.hosting.checkpoints.reader import read_savepoint
from penstock.engine.hosting.program import spark_host
from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError, JobCancelledError, PenstockError
from penstock.engine.model.graph.stream_graph import StreamGraph
from penstock.engine.model.options.checkpoints import RecoveryOptions
from penstock.engine.model.options.cluster import (
    HighAvailabilityOptions,
    SparkOptions,
    TaskManagerOptions,
)
from penstock.engine.model.options.rest import HistoryServerOptions
from penstock.engine.model.options.scheduling import ConsoleOptions, SchedulingOptions
from penstock.engine.model.program import ProgramSettings
from penstock.engine.model.states import JobStatus
from penstock.ops.cli.detached import check_attached, check_mode, run_detached
from penstock.ops.cli.doctor import doctor
from penstock.ops.cli.plan import PlanExecutor, PlanShown, shape_of
from penstock.ops.cli.remote.texts import answered, complain, show
from penstock.ops.cli.run_in_session import check_without_session, in_session
from penstock.ops.cli.savepoint_check import BAD_USE, check_savepoint, render_rows, render_savepoint
from penstock.ops.cli.session import session
from penstock.ops.cli.transactions import transactions
from penstock.ops.history.server import HistoryServer
from penstock.ops.operations import install
from penstock.ops.remote.executor import RemoteExecutor
from penstock.ops.remote.job import RemoteJob


def run_command(options: argparse.Namespace) -> int:
    """Run one, and return its exit code."""
    install()
    try:
        if options.command == "plan":
            shape = shape_of(options)
            parallelism = options.parallelism or shape.slots
            spark_host.override_executor(
                PlanExecutor(
                    shape,
                    parallelism,
                    options.fail,
                    _settings(options.define),
                    shows_functions=options.functions,
                )
            )
        settings, conf = command_line(options)
        if options.command == "run" and options.jobmanager is not None:
            settings = in_session(options, settings)
        elif options.command == "run":
            check_without_session(options)
            check_mode(options, conf)
            if options.detached:
                return run_detached(options)
            check_attached(options)
        spark_host.set_command_line(settings, conf)
        command = _WITHOUT_PROGRAM.get(options.command)
        if command is not None:
            return answered(command, options)
        if options.command == "run" and options.json:
            spark_host.override_executor(_ListedJobs(settings, sys.stdout))
            with contextlib.redirect_stdout(sys.stderr):  # The answer has JSON alone.
                _run_script(options.script, options.arguments)
        else:
            _run_script(options.script, options.arguments)
    except PlanShown:
        return 0
    except PenstockError as error:
        complain(str(error))
        return _status_after(error, options)
    finally:
        spark_host.override_executor(None)
        spark_host.set_command_line({})
    if options.command == "plan":
        complain(f"{options.script} ended without running a job; call execute() in it")
        return 1
    return 0


class _ListedJobs(RemoteExecutor):
    """Writes a line of JSON for each job that it submits."""

    def __init__(self, command_line: Mapping[str, str], to: TextIO) -> None:
        super().__init__(command_line)
        self._to = to

    def submit(self, graph: StreamGraph, program: ProgramSettings) -> RemoteJob:
        found = super().submit(graph, program)
        job = {"job": found.job_id, "name": graph.job_name, "address": found.address}
        show(json.dumps(job, ensure_ascii=False), self._to)
        return found


def _status_after(error: PenstockError, options: argparse.Namespace) -> int:
    """The exit code. After a cancelled job 0, as in Flink: a cluster must not start the program again."""
    if getattr(options, "action", None) == "check":
        return BAD_USE
    return 0 if isinstance(error, JobCancelledError) else 1


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
    if options.kubernetes:
        found[HighAvailabilityOptions.TYPE.key] = "KUBERNETES"
    return found


def command_line(options: argparse.Namespace) -> tuple[dict[str, str], dict[str, str]]:
    """Penstock's settings, and Spark's own."""
    found = _cluster_size(options) | _settings(getattr(options, "define", ())) | _recovery(options)
    if getattr(options, "live", False):
        found[ConsoleOptions.LIVE.key] = "true"
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
    jobs = ClusterExecutor(spark_host.default_host()).recover(store_settings(options))
    if not jobs:
        place = options.zookeeper or options.storage_dir
        complain(f"found no job of {options.cluster_id!r} in {place}")
    is_good = bool(jobs)
    for name, control in jobs:
        outcome = control.wait()
        complain(f"job '{name}' ({control.job_id}): {outcome.status}")
        if outcome.status is not JobStatus.FINISHED:
            is_good = False
            show(outcome.failure or "", sys.stderr)
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
        show(f"removed {options.directory}")
    elif options.state is not None:
        uid, name = options.state
        show(render_rows(savepoint.keyed_state(uid, name), options.rows))
    else:
        show(render_savepoint(savepoint))
    return 0


def _check(options: argparse.Namespace) -> int:
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
    "transactions": transactions,
    "history": lambda options: _serve_history(options, _settings(options.define)),
    "session": session,
    "doctor": lambda _options: doctor(),
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


def _serve_history(options: argparse.Namespace, defined: Mapping[str, str]) -> int:
    """`penstock history`: serve until the process is interrupted, and return the exit code. `defined`: options of the command line."""
    given = dict(defined)
    if options.port is not None:
        given[HistoryServerOptions.PORT.key] = str(options.port)
    settings = Settings(command_line=given)
    configured = settings.get(HistoryServerOptions.DIRS) or ""
    named = [one.strip() for one in configured.split(",") if one.strip()]
    server = HistoryServer(options.directories or named, settings)
    count = "1 job" if server.jobs == 1 else f"{server.jobs} jobs"
    show(f"penstock: history of {count} at {server.address}")
    with contextlib.suppress(KeyboardInterrupt):
        server.run()
    return 0
