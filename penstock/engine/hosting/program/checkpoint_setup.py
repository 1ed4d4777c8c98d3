"""From the configuration to a job's checkpoint directory, and the checkpoint that the job begins
with. Runs before the job starts.

Source: Flink CheckpointStorageLoader, Checkpoints.loadAndValidateCheckpoint; differs: without a
directory, Flink keeps checkpoints in the JobManager's memory. Here they go to a temporary directory
if driver and tasks share a file system; otherwise the job is refused.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import shutil
import tempfile
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Final

from penstock.engine.hosting.checkpoints.storage import CheckpointStorage
from penstock.engine.hosting.jobmanager.checkpoint_writer import JobStorage, Pointers
from penstock.engine.hosting.jobmanager.machine_shell import JobManagerSettings
from penstock.engine.hosting.os import file_systems
from penstock.engine.hosting.os.private_files import NotPrivate
from penstock.engine.machines.checkpoints.job_checkpoints import can_be_snapshotted
from penstock.engine.machines.checkpoints.key_checks import empty_start, without_their_state
from penstock.engine.machines.checkpoints.settings import (
    CheckpointPlaces,
    CheckpointSettings,
    checkpoint_places_of,
    checkpoint_settings_of,
)
from penstock.engine.model.checkpoints import (
    METADATA,
    CheckpointType,
    CompletedCheckpoint,
    TaskCheckpointing,
)
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.options.checkpoints import CheckpointOptions, Retention

_LOG: Final = logging.getLogger(__name__)
_PREFIX: Final = "penstock-checkpoints-"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known in addition to the configuration. `shares_files`: driver and tasks see the same local
    files.

    `recovery_directory`: for checkpoints of a job that another driver may take over; None: no other
    driver may. `pointers`: checkpoints that a former driver recorded; None: there was none. `say`:
    prints a line for the user.
    """

    shares_files: bool
    draw: Callable[[], float]
    say: Callable[[str], None]
    recovery_directory: str | None = None
    pointers: Pointers | None = None


def with_checkpoints(
    built: JobManagerSettings, settings: Settings, job_graph: JobGraph, around: Surroundings
) -> JobManagerSettings:
    """Add what the job's checkpoints need to its settings.

    Raises: ConfigurationError: there is no directory but one is needed, other users may write to it,
    or a value is out of range. CheckpointIoError, CheckpointDamaged: the directory cannot be written, or the checkpoint to
    begin with cannot be read.
    """
    places = _absolute(checkpoint_places_of(settings))
    wanted = checkpoint_settings_of(settings, around.draw)
    if not can_be_snapshotted(job_graph):
        wanted = replace(wanted, interval_ms=None)
    directory, is_temporary = _directory(places, wanted, around)
    if directory is None:
        return built
    try:
        if not is_temporary and not settings.is_set(CheckpointOptions.RETENTION):
            # Nobody has ended a job that FAILED: Spark may have been taken away.
            wanted = replace(wanted, retention=Retention.DELETE_ON_CANCELLATION)
        return _built(
            built, job_graph, (places, wanted, around), directory, is_temporary=is_temporary
        )
    except BaseException:
        if is_temporary:
            shutil.rmtree(directory, ignore_errors=True)
        raise


def check_clients(settings: Settings) -> None:
    """Look for the packages that read and write checkpoints. Raises ConfigurationError: one is missing here."""
    places = checkpoint_places_of(settings)
    for given in (places.directory, places.savepoints, places.restored):
        if given is not None:
            file_systems.check_client(given)


def _absolute(places: CheckpointPlaces) -> CheckpointPlaces:
    """The tasks work in other directories than this process, and each of these may be removed while the job runs."""

    def at(path: str | None) -> str | None:
        return None if path is None else file_systems.absolute(path)

    return replace(
        places,
        directory=at(places.directory),
        savepoints=at(places.savepoints),
        restored=at(places.restored),
    )


def _built(
    built: JobManagerSettings,
    job_graph: JobGraph,
    asked: tuple[CheckpointPlaces, CheckpointSettings, Surroundings],
    directory: str,
    *,
    is_temporary: bool,
) -> JobManagerSettings:
    places, wanted, around = asked
    storage = CheckpointStorage(directory, job_graph.job_id)
    _check_places(storage, places, directory, is_periodic=wanted.is_periodic, say=around.say)
    completed = _found(storage, places, around)
    if completed and not around.pointers:
        _warn_of_empty_starts(job_graph, completed[-1], around)
    wanted = replace(wanted, first_id=storage.next_id())
    tasks = TaskCheckpointing(
        directory,
        places.inline_bytes,
        has_final_checkpoint=wanted.has_final_checkpoint,
        is_exactly_once=wanted.is_exactly_once,
        may_be_unaligned=wanted.is_unaligned,
        are_finished_tasks_allowed=wanted.are_finished_tasks_allowed,
        is_incremental=places.is_incremental,
        has_local_copies=built.job.is_local_recovery,
        is_periodic=wanted.is_periodic,
        kept_bytes=places.kept_bytes,
    )
    is_taken_over = around.pointers is not None
    return replace(
        built,
        job=replace(built.job, checkpoints=wanted),
        task=replace(built.task, checkpointing=tasks),
        storage=JobStorage(
            storage, places.savepoints, is_temporary, wanted.first_id, completed, is_taken_over
        ),
    )


def _directory(
    places: CheckpointPlaces, wanted: CheckpointSettings, around: Surroundings
) -> tuple[str | None, bool]:
    """Return the directory, and whether it is made for this job only."""
    if places.directory is not None:
        return places.directory, False
    if around.shares_files and wanted.is_periodic:
        if around.recovery_directory is not None:
            return around.recovery_directory, False
        return tempfile.mkdtemp(prefix=_PREFIX), True
    if wanted.is_periodic:
        raise ConfigurationError(
            "checkpoints are enabled (execution.checkpointing.interval), but there is no "
            "directory for them, and the tasks run on other machines than this driver. Set "
            "execution.checkpointing.dir to a path or URI that all of them can write, such "
            "as file:///mnt/checkpoints, hdfs://namenode/checkpoints or "
            "s3://bucket/checkpoints."
        )
    given = places.savepoints or places.restored
    # Only its file system matters; nothing but savepoints is written below it.
    if given is not None:
        folder, name = file_systems.parted(given)
        return folder if name == METADATA else given, False
    if around.shares_files:  # Only a name; nothing is made there.
        return f"{tempfile.gettempdir()}/{_PREFIX}{secrets.token_hex(8)}", False
    return None, False


def _check_places(
    storage: CheckpointStorage,
    places: CheckpointPlaces,
    directory: str,
    *,
    is_periodic: bool,
    say: Callable[[str], None],
) -> None:
    """Refuse directories from which nothing would be restored later, so that no job runs for days
    without a checkpoint to go on from.

    A directory that the job may never use is only warned of: without an interval nothing but a
    savepoint would be written there, which is refused when it is asked for.
    """
    if is_periodic:
        _check_writable(storage, directory)
    elif places.directory is not None:
        with _named(CheckpointOptions.DIR.key, places.directory, warn=say):
            file_systems.check_private(places.directory)
    if places.savepoints is not None:
        with _named(CheckpointOptions.SAVEPOINT_DIR.key, places.savepoints):
            file_systems.check_private(places.savepoints)


@contextlib.contextmanager
def _named(
    option: str, value: str, warn: Callable[[str], None] | None = None
) -> Generator[None, None, None]:
    """Name the option of a directory that does not pass. `warn`: takes the text; None: it is raised."""
    try:
        yield
    except NotPrivate as error:
        text = f"nothing could be restored from {option} {value!r}: {error}"
        if warn is None:
            raise NotPrivate(text) from error
        warn(f"warning: {text}")


def _check_writable(storage: CheckpointStorage, directory: str) -> None:
    try:
        with _named(CheckpointOptions.DIR.key, directory):
            storage.check()
    except file_systems.CheckpointIoError as error:
        raise ConfigurationError(
            f"execution.checkpointing.dir {directory!r} cannot be written to: {error}. Name a directory that driver and tasks "
            "can write."
        ) from error


def _found(
    storage: CheckpointStorage, places: CheckpointPlaces, around: Surroundings
) -> tuple[CompletedCheckpoint, ...]:
    """Return the checkpoints to begin with: those that a former driver recorded, else the one that the user names."""
    if around.pointers:
        found = _recovered(storage, around.pointers, around.say)
        return tuple(_owned(one, storage, places) for one in found)
    if places.restored is None:
        return ()
    checkpoint = storage.load_given(places.restored)
    storage.probe(checkpoint)
    return (_owned(checkpoint, storage, places),)


def _warn_of_empty_starts(
    job_graph: JobGraph, checkpoint: CompletedCheckpoint, around: Surroundings
) -> None:
    """Warn of each operator that starts empty while others find their state."""
    for operator in without_their_state(job_graph, checkpoint):
        text = empty_start(operator, job_graph, checkpoint)
        _LOG.warning("operator=%s state=EMPTY cause=%s", operator.uid, text)
        around.say(f"warning: {text}")


def _owned(
    checkpoint: CompletedCheckpoint, storage: CheckpointStorage, places: CheckpointPlaces
) -> CompletedCheckpoint:
    """Mark a checkpoint that the user named: the job's own if it is claimed, else a savepoint,
    which is never discarded.
    """
    if places.restored is None or checkpoint.location is None:
        return checkpoint
    named = storage.find(places.restored)
    if checkpoint.location not in {named, file_systems.joined(named, METADATA)}:
        return checkpoint
    kind = CheckpointType.CHECKPOINT if places.is_claimed else CheckpointType.SAVEPOINT
    return replace(checkpoint, checkpoint_type=kind)


def _recovered(
    storage: CheckpointStorage, pointers: Pointers, say: Callable[[str], None]
) -> tuple[CompletedCheckpoint, ...]:
    """Return all complete checkpoints, oldest first.

    Raises: ExternalError: none is complete. Beginning without one would repeat results that are
    visible already.
    """
    whole: list[CompletedCheckpoint] = []
    trouble: list[str] = []
    for checkpoint_id, location in pointers:
        try:
            checkpoint = storage.load(location)
            storage.probe(checkpoint)
        except ExternalError as error:
            trouble.append(f"checkpoint {checkpoint_id}: {error}")
        else:
            whole.append(checkpoint)
    if not whole:
        raise ExternalError(
            "none of the job's completed checkpoints can be read, so the job cannot continue "
            f"without losing or repeating results: {'; '.join(trouble)}. Restore the files, "
            "or remove the job's entry and start the job from nothing."
        )
    newest = pointers[-1][0]
    if whole[-1].checkpoint_id != newest:
        say(
            "the newest checkpoint cannot be read; continuing from checkpoint "
            f"{whole[-1].checkpoint_id} instead: {trouble[-1]}"
        )
    return tuple(whole)
