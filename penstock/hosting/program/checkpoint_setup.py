"""From the configuration to where a job's checkpoints lie, and what it begins with. Before anything starts.

Source: Flink CheckpointStorageLoader, Checkpoints.loadAndValidateCheckpoint; differs: without a directory Flink keeps them in
the JobManager's memory, here they go to a temporary one if driver and tasks share a file system, else the job is refused.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from penstock.hosting.checkpoints.keeper import JobStorage, Pointers
from penstock.hosting.checkpoints.storage import METADATA, CheckpointStorage
from penstock.hosting.file_systems import CheckpointIoError, joined, refuse_foreign
from penstock.hosting.jobmanager.machine_shell import JobManagerSettings
from penstock.machines.checkpoints.job_checkpoints import can_be_snapshotted
from penstock.machines.checkpoints.settings import (
    CheckpointPlaces,
    CheckpointSettings,
    checkpoint_places_of,
    checkpoint_settings_of,
)
from penstock.model.checkpoints import CheckpointType, TaskCheckpointing
from penstock.model.completed_checkpoint import CompletedCheckpoint
from penstock.model.config import Settings
from penstock.model.errors import ConfigurationError, ExternalError
from penstock.model.graph.job_graph import JobGraph

_PREFIX: Final = "penstock-checkpoints-"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known beside the configuration. `shares_files`: driver and tasks see the same local files.

    `recovery_directory`: for checkpoints of a job that another driver may take over, None: none may. `pointers`: what a
    former driver left, None: there was none. `say`: takes a line for the user.
    """

    shares_files: bool
    draw: Callable[[], float]
    say: Callable[[str], None]
    recovery_directory: str | None = None
    pointers: Pointers | None = None


def with_checkpoints(
    built: JobManagerSettings, settings: Settings, job_graph: JobGraph, around: Surroundings
) -> JobManagerSettings:
    """What the job's checkpoints make of its settings.

    Raises: ConfigurationError: no directory where one is needed, a value out of range. CheckpointIoError, CheckpointDamaged: it
    cannot be written to, or what the job is to begin with cannot be read.
    """
    places = checkpoint_places_of(settings)
    wanted = checkpoint_settings_of(settings, around.draw)
    if not can_be_snapshotted(job_graph):
        wanted = replace(wanted, interval_ms=None)
    directory, is_temporary = _directory(places, wanted, around)
    if directory is None:
        return built
    try:
        return _built(
            built, job_graph, (places, wanted, around), directory, is_temporary=is_temporary
        )
    except BaseException:
        if is_temporary:
            shutil.rmtree(directory, ignore_errors=True)
        raise


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
    if wanted.is_periodic:
        _check_writable(storage, directory)
    completed = _found(storage, places, around)
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
    """The directory, and whether it is made for this job only."""
    if places.directory is not None:
        return places.directory, False
    if around.shares_files and wanted.is_periodic:
        if around.recovery_directory is not None:
            return around.recovery_directory, False
        return tempfile.mkdtemp(prefix=_PREFIX), True
    if wanted.is_periodic:
        raise ConfigurationError(
            "checkpoints are asked for (execution.checkpointing.interval), and there is no directory for them: the tasks "
            "run on other machines than this driver. Set execution.checkpointing.dir to a path or URI that all of them can "
            "write, such as file:///mnt/checkpoints, hdfs://namenode/checkpoints or s3://bucket/checkpoints."
        )
    beside = places.savepoints or places.restored
    if beside is not None:  # the file system counts; nothing is written below it but savepoints
        return beside, False
    if around.shares_files:  # no more than a name
        return f"{tempfile.gettempdir()}/{_PREFIX}{secrets.token_hex(8)}", False
    return None, False


def _check_writable(storage: CheckpointStorage, directory: str) -> None:
    try:
        storage.check()
    except CheckpointIoError as error:
        raise ConfigurationError(
            f"execution.checkpointing.dir {directory!r} cannot be written to: {error}. Name a directory that driver and tasks "
            "can write."
        ) from error


def _found(
    storage: CheckpointStorage, places: CheckpointPlaces, around: Surroundings
) -> tuple[CompletedCheckpoint, ...]:
    """What the job begins with: where a former driver left it, else what the user names, else nothing."""
    if around.pointers:
        found = _recovered(storage, around.pointers, around.say)
        return tuple(_owned(one, storage, places) for one in found)
    if places.restored is None:
        return ()
    refuse_foreign(places.restored)
    checkpoint = storage.load_given(places.restored)
    storage.probe(checkpoint)
    return (_owned(checkpoint, storage, places),)


def _owned(
    checkpoint: CompletedCheckpoint, storage: CheckpointStorage, places: CheckpointPlaces
) -> CompletedCheckpoint:
    """What the user named is the job's own if it is claimed; else it stays, as a savepoint does, whatever it was."""
    if places.restored is None or checkpoint.location is None:
        return checkpoint
    named = storage.find(places.restored)
    if checkpoint.location not in {named, joined(named, METADATA)}:
        return checkpoint
    kind = CheckpointType.CHECKPOINT if places.is_claimed else CheckpointType.SAVEPOINT
    return replace(checkpoint, checkpoint_type=kind)


def _recovered(
    storage: CheckpointStorage, pointers: Pointers, say: Callable[[str], None]
) -> tuple[CompletedCheckpoint, ...]:
    """All that are whole, oldest first. Raises: ExternalError: none is; to begin anew would double what is visible already."""
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
            "none of the job's completed checkpoints can be used, so it cannot go on without losing or doubling "
            f"results: {'; '.join(trouble)}. Bring the files back, or remove the job's entry and start it anew."
        )
    newest = pointers[-1][0]
    if whole[-1].checkpoint_id != newest:
        say(
            f"the newest checkpoint is not used, but checkpoint {whole[-1].checkpoint_id}: {trouble[-1]}"
        )
    return tuple(whole)
