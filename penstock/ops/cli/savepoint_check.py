"""`penstock savepoint check`: shows what becomes of each state of a savepoint, without running the job.

The program runs up to its first `execute()`. Does not judge states: that is `engine/hosting/checkpoints/restore_check.py`.

A savepoint as text: its operators, their states and sizes, and how evenly the keys are spread. Does no I/O.
"""

from __future__ import annotations

import datetime as dt
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, islice
from typing import Final

from penstock.engine.compiler.job_graph_builder import build_job_graph
from penstock.engine.hosting.checkpoints.reader import (
    KeyedRows,
    OperatorView,
    Savepoint,
    read_savepoint,
)
from penstock.engine.hosting.checkpoints.restore_check import (
    Outcome,
    RestoreFlags,
    StateVerdict,
    check_restore,
    is_refused,
)
from penstock.engine.hosting.jobmanager.handle import JobHandle
from penstock.engine.hosting.program import spark_host
from penstock.engine.hosting.shipping.pickling import serialize_program
from penstock.engine.machines.checkpoints.settings import checkpoint_settings_of
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError, PenstockError
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.graph.stream_graph import StreamGraph
from penstock.engine.model.ids import JobId
from penstock.engine.model.options.scheduling import SchedulingOptions
from penstock.engine.model.program import ProgramSettings
from penstock.ops.cli.remote.texts import show

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024
_HOTTEST: Final = 3


def render_savepoint(savepoint: Savepoint) -> str:
    """All operators, from sources to sinks."""
    checkpoint = savepoint.checkpoint
    taken = dt.datetime.fromtimestamp(checkpoint.timestamp_ms / 1000, dt.UTC)
    head = (
        f"{checkpoint.checkpoint_type.value} {checkpoint.checkpoint_id} of job {checkpoint.job_id}\n"
        f"taken {taken:%Y-%m-%d %H:%M:%S} UTC, {shown_bytes(savepoint.size_bytes)} of state"
    )
    return "\n\n".join([head, *map(_operator_text, savepoint.operators())])


def render_rows(rows: KeyedRows, limit: int) -> str:
    """The first `limit` rows, one per line."""
    columns = rows.columns()
    lines = ["\t".join(columns)]
    lines += [
        "\t".join(map(repr, row)) for row in islice(zip(*columns.values(), strict=True), limit)
    ]
    if len(rows) > limit:
        lines.append(f"... {len(rows) - limit:,} more")
    return "\n".join(lines)


def shown_bytes(size: float) -> str:
    """A size in bytes as text: 1536 gives 1.5 KiB."""
    for unit in _UNITS[:-1]:
        if size < _STEP:
            return f"{size:,.0f} B" if unit == "B" else f"{size:,.1f} {unit}"
        size /= _STEP
    return f"{size:,.1f} {_UNITS[-1]}"


def _operator_text(operator: OperatorView) -> str:
    size = shown_bytes(operator.size_bytes)
    lines = [
        f"{operator.name}  (uid {operator.uid})",
        f"  parallelism {operator.parallelism} of at most {operator.max_parallelism}, {size}",
    ]
    if operator.is_finished:
        lines.append("  finished: all its subtasks had ended")
    if operator.coordinator_bytes:
        lines.append(f"  coordinator: {shown_bytes(operator.coordinator_bytes)}")
    if operator.bytes_in_flight:
        lines.append(f"  in flight: {shown_bytes(operator.bytes_in_flight)}")
    lines += [
        f"  keyed state '{state.name}': {state.kind}, {state.rows:,} rows, {shown_bytes(state.size_bytes)}"
        for state in operator.keyed
    ]
    lines += [
        f"  list state '{state.name}': {state.mode}, {state.elements:,} elements, {shown_bytes(state.size_bytes)}"
        for state in operator.lists
    ]
    skew = _skew(operator.group_rows, operator.max_parallelism)
    return "\n".join([*lines, skew] if skew else lines)


def _skew(groups: Counter[int], key_groups: int) -> str:
    """How many times as many rows as the average the fullest key groups hold."""
    total = groups.total()
    if not total:
        return ""
    mean = total / key_groups
    hottest = ", ".join(f"{group}: {rows:,}" for group, rows in groups.most_common(_HOTTEST))
    most = groups.most_common(1)[0][1]
    return f"  key groups: {len(groups)} of {key_groups} hold rows, the fullest {most / mean:.1f} times the average ({hottest})"


RESTORED, REFUSED, BAD_USE = 0, 1, 2
"""Exit codes."""
_CHECK_JOB_ID: Final = JobId("0" * 32)
_NAME_WIDTH: Final = 24
_COUNTED: Final = {
    Outcome.MAPS: "as they are",
    Outcome.MIGRATED: "migrated",
    Outcome.EMPTY: "empty at the start",
    Outcome.KEPT: "kept unused",
    Outcome.DROPPED: "dropped",
    Outcome.UNKNOWN: "not known",
    Outcome.REFUSED: "refused",
}


class _GraphTaken(BaseException):
    """Raised by the first `execute()`, to end the program. A BaseException, so that programs do not catch it."""

    def __init__(self, graph: JobGraph, settings: Settings) -> None:
        self.graph = graph
        self.settings = settings


class CheckExecutor:
    """`engine.model.program.JobExecutor` that takes the program's graph, and ends the program."""

    def __init__(self, command_line: Mapping[str, str]) -> None:
        self._command_line = command_line

    def options_of(self, program: ProgramSettings) -> Mapping[str, str]:
        """See `engine.model.program.JobExecutor`."""
        return Settings(program.configuration, command_line=self._command_line).as_text()

    def submit(self, graph: StreamGraph, program: ProgramSettings) -> JobHandle:
        settings = Settings(program.configuration, command_line=self._command_line)
        if graph.is_batch:
            raise ConfigurationError(
                "the program runs in BATCH mode, which has no savepoints. Set the runtime mode "
                "STREAMING to check one."
            )
        configured = settings.get(SchedulingOptions.DEFAULT_PARALLELISM)
        graph.default_parallelism = int(configured or 1)
        raise _GraphTaken(build_job_graph(graph, _CHECK_JOB_ID, serialize_program), settings)


def check_savepoint(
    run_program: Callable[[], None],
    directory: str,
    command_line: Mapping[str, str],
    say: Callable[[str], None],
    *,
    opens: bool = True,
) -> int:
    """Run the program up to `execute()` and print the verdict on each state. Returns the exit code.

    Args: command_line: settings, as `-D` gives them. say: prints text for people who made a mistake.
    """
    try:
        savepoint = read_savepoint(directory)
        taken = _taken(run_program, command_line, say)
        if taken is None:
            return BAD_USE
        wanted = checkpoint_settings_of(taken.settings)
        flags = RestoreFlags(wanted.is_unclaimed_state_ignored, wanted.allows_double, opens)
        verdicts = check_restore(taken.graph, savepoint, flags)
    except PenstockError as error:
        say(str(error))
        return BAD_USE
    show(render_check(savepoint, verdicts))
    return REFUSED if is_refused(verdicts) else RESTORED


def _taken(
    run_program: Callable[[], None], command_line: Mapping[str, str], say: Callable[[str], None]
) -> _GraphTaken | None:
    """The graph of the program's first job; None: there is none, and it was said why. Raises: PenstockError: the graph cannot run."""
    spark_host.override_executor(CheckExecutor(command_line))
    try:
        run_program()
    except _GraphTaken as taken:
        return taken
    except SystemExit as error:
        say(f"the program called sys.exit({error.code!r}) before it ran a job")
    except PenstockError:
        raise
    except Exception:
        # The program's own error: its line is what helps.
        say(f"the program failed before it ran a job:\n{traceback.format_exc()}")
    else:
        say("the program ended without running a job; call execute() in it")
    finally:
        spark_host.override_executor(None)
    return None


def render_check(savepoint: Savepoint, verdicts: Sequence[StateVerdict]) -> str:
    """All verdicts, by operator, and what they come to."""
    checkpoint = savepoint.checkpoint
    head = (
        f"{checkpoint.checkpoint_type.value} {checkpoint.checkpoint_id} of job {checkpoint.job_id}"
    )
    by_operator = groupby(verdicts, key=lambda one: (one.operator, one.uid))
    shown = [_operator(*key, list(found)) for key, found in by_operator]
    return "\n\n".join([head, *shown, _summary(verdicts)])


def _operator(name: str, uid: str, verdicts: Sequence[StateVerdict]) -> str:
    title = f"{name}  (uid {uid})" if uid else "the job"
    return "\n".join([title, *map(_line, verdicts)])


def _line(verdict: StateVerdict) -> str:
    types = " -> ".join(filter(None, (verdict.former, verdict.present)))
    if verdict.former == verdict.present:
        types = verdict.former
    parts = [
        f"  {verdict.state or 'all state':{_NAME_WIDTH}} {verdict.outcome}",
        f": {types}" if types else "",
    ]
    text = f"\n    {verdict.text}" if verdict.text else ""
    return "".join(parts) + text


def _summary(verdicts: Sequence[StateVerdict]) -> str:
    counts = Counter(one.outcome for one in verdicts)
    found = [f"{counts[one]} {counted}" for one, counted in _COUNTED.items() if counts[one]]
    shown = ", ".join(found) or "no state"
    return f"{shown}. {_end(verdicts)}"


def _end(verdicts: Sequence[StateVerdict]) -> str:
    if is_refused(verdicts):
        return "The savepoint would be REFUSED."
    if any(one.outcome is Outcome.UNKNOWN for one in verdicts):
        return "As far as this is known, the savepoint would be restored."
    return "The savepoint would be restored."
