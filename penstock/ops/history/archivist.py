"""Archives the jobs of this driver when they have ended, on a thread of its own.

A job's end does not wait for it, and its result does not change if the archive cannot be written. The end of the process waits for
it, but not for ever. Source: Flink FsJsonArchivist, Dispatcher.archiveExecutionGraphToHistoryServer.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from penstock.engine.hosting.observer import JobEnded, JobObserver
from penstock.engine.hosting.os.file_systems import local_path
from penstock.engine.hosting.os.waiting import is_in_a_hurry
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.ids import JobId
from penstock.engine.model.texts.redaction import without_credentials
from penstock.ops.history.library import ArchiveExists, write_archive
from penstock.ops.jobs.views.archive import Entry, archive_of
from penstock.ops.jobs.views.cluster import environment
from penstock.ops.registry.job_registry import JobRegistry

_LOG: Final = logging.getLogger(__name__)
EXIT_WAIT_S: Final = 30.0
"""How long the end of the process waits for archives that are not written yet."""
_REMOVAL_S: Final = 2.0
"""How long it then waits until what there is of one is removed."""


class _GivenUp(ExternalError):
    """The process ends before an archive is written."""


class Archivist:
    """Writes archives of jobs that have ended. Any thread may call it. `say`: prints what went wrong."""

    def __init__(self, job_registry: JobRegistry, say: Callable[[str], None]) -> None:
        self._job_registry = job_registry
        self._say = say
        self._waiting: deque[tuple[JobId, str]] = deque()
        self._changed = threading.Condition()
        self._present: JobId | None = None
        self._thread: threading.Thread | None = None
        self._waits_at_exit = False
        self._is_given_up = False

    def observer(self, job_id: JobId, directory: str) -> JobObserver:
        """Return what archives the job when it has ended. The job_registry must hold the job, and record it first."""
        if local_path(directory) is None:
            # The file system's own exit handler must be called after ours: handlers are called from the last to the first.
            import pyarrow.fs  # noqa: F401 # for its exit handler
        with self._changed:
            if not self._waits_at_exit:
                self._waits_at_exit = True
                atexit.register(self.finish, EXIT_WAIT_S)
        return _EndOfJob(self, job_id, directory)

    def ended(self, job_id: JobId, directory: str) -> None:
        """Archive a job soon. Returns at once."""
        with self._changed:
            self._waiting.append((job_id, directory))
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="penstock-archive", daemon=True
                )
                self._thread.start()

    def drop(self, job_id: JobId) -> None:
        """The job is not archived: another driver may take it."""
        self._job_registry.release(job_id)

    def finish(self, timeout_s: float) -> bool:
        """Wait until all ended jobs are archived. Returns: whether they are. If not, a line for the user names the others, and nothing of
        them is left.
        """
        with self._changed:
            if self._changed.wait_for(self._is_done, 0.0 if is_in_a_hurry() else timeout_s):
                return True
            left = [self._present, *(job_id for job_id, _ in self._waiting)]
            self._is_given_up = True
            self._waiting.clear()
            self._changed.wait_for(self._is_done, _REMOVAL_S)
        named = ", ".join(job_id for job_id in left if job_id is not None)
        self._say(f"archives are not written after {timeout_s:g} s. Without one: {named}")
        return False

    def _is_done(self) -> bool:
        return not self._waiting and self._present is None

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                job_id, directory = self._waiting.popleft()
                self._present = job_id
            try:
                self._archive(job_id, directory)
            finally:
                with self._changed:
                    self._present = None
                    self._changed.notify_all()

    def _archive(self, job_id: JobId, directory: str) -> None:
        try:
            job = self._job_registry.job(job_id)
            assert job is not None, "the job_registry holds it"
            entries = archive_of(job, environment(), self._job_registry.figures)
            place = write_archive(directory, job_id, self._while_wanted(entries))
        except _GivenUp:
            _LOG.warning("job=%s archive=%s GIVEN UP", job_id, without_credentials(directory))
        except ArchiveExists:
            _LOG.info("job=%s archive=%s EXISTS", job_id, without_credentials(directory))
        except Exception as error:
            where, cause = without_credentials(directory), without_credentials(str(error))
            _LOG.warning("job=%s archive=%s NOT WRITTEN cause=%s", job_id, where, cause)
            self._say(
                f"job {job_id} is not archived: {cause}. "
                f"Check jobmanager.archive.fs.dir, which is {where!r}"
            )
        else:
            _LOG.info("job=%s archive=%s WRITTEN", job_id, without_credentials(place))
        finally:
            self._job_registry.release(job_id)

    def _while_wanted(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        for one in entries:
            if self._is_given_up:
                raise _GivenUp("the process ends")
            yield one


class _EndOfJob(JobObserver):
    """Waits for the end of one job."""

    def __init__(self, archivist: Archivist, job_id: JobId, directory: str) -> None:
        self._archivist = archivist
        self._job_id = job_id
        self._directory = directory

    def on_job_ended(self, event: JobEnded) -> None:
        if event.status.is_globally_terminal:
            self._archivist.ended(self._job_id, self._directory)
        else:
            self._archivist.drop(self._job_id)
