"""A session from its start to its end: leads its cluster-id, recovers jobs, takes new ones, and lets go of all.

Source: Flink StandaloneSessionClusterEntrypoint, SessionDispatcherLeaderProcess; differs: jobs of single programs of the same cluster-id
whose drivers are gone are taken over too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

from penstock.engine.hosting.jobmanager.ha.election import Claim, Election, Standby
from penstock.engine.hosting.jobmanager.ha.guard import LeaseKeeper
from penstock.engine.hosting.jobmanager.ha.settings import HaSettings, ha_settings_of
from penstock.engine.hosting.os.clock import wall_ms
from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.hosting.program.host import Host
from penstock.engine.hosting.reporting.logs import driver as driver_log
from penstock.engine.hosting.reporting.logs.settings import log_settings_of
from penstock.engine.machines.dispatcher import Cancelled, dispatcher_settings_of
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.ids import JobId
from penstock.engine.model.options.cluster import HighAvailabilityOptions
from penstock.engine.model.options.rest import RestOptions
from penstock.engine.model.options.scheduling import SchedulingOptions
from penstock.ops.operations import install
from penstock.ops.remote.rows import Piece
from penstock.ops.remote.session_client import check_versions, own_versions
from penstock.ops.rest.server import address_of_server
from penstock.ops.rest.session_place import ROWS_KEY, SESSION_PLACE
from penstock.ops.session.modules import ModuleSpaces
from penstock.ops.session.submissions import Submissions

_LOG: Final = logging.getLogger(__name__)
_WATCH_S: Final = 0.2
_END_WAIT_S: Final = 30.0
_SIGNS_OF_LIFE: Final = 2


class Session:
    """A `ops.rest.session_place.SessionPort`. Call `run`; `stop` ends it, from any thread.

    `say`: prints a line for the user.
    """

    def __init__(self, host: Host, settings: Settings, say: Callable[[str], None]) -> None:
        """Raises ConfigurationError: high availability cannot work as it is set."""
        install()
        self._host = host
        self._settings = settings
        self._say = say
        self._ha: HaSettings | None = ha_settings_of(settings)
        self._modules = ModuleSpaces(needs_all=not host.ships_modules)
        self.election = None if self._ha is None else Election(self._ha, say, self._modules.open)
        self._submissions = Submissions(
            ClusterExecutor(host),
            self._modules,
            dispatcher_settings_of(settings),
            self.election,
            self._fail,
            ships_modules=host.ships_modules,
        )
        self._stopping = threading.Event()
        self._is_ready = False
        self._stands_by = False
        self._trouble: str | None = None
        self._started_s = time.time()

    # ------------------------------------------------------------------ as requests see it

    @property
    def is_standby(self) -> bool:
        return not self._is_ready

    def about(self) -> dict[str, Any]:
        configured = self._settings.get(SchedulingOptions.DEFAULT_PARALLELISM)
        return {
            "ready": self._is_ready,
            "stands-by": self._stands_by,
            "pid": os.getpid(),
            "start-time": int(self._started_s * 1000),
            "cluster-id": None
            if self._ha is None
            else self._settings.get(HighAvailabilityOptions.CLUSTER_ID),
            "versions": own_versions(),
            "parallelism": configured or self._host.default_parallelism(self._settings),
            "cores": self._host.cores(self._settings),
            "jobs": self._submissions.jobs(),
        }

    def check(self, versions: Mapping[str, str]) -> None:
        check_versions(versions, own_versions())

    def submit(self, data: bytes) -> dict[str, Any]:
        if not self._is_ready:
            raise ExternalError("the session does not lead yet, or is ending. Try again later.")
        return {"job-id": self._submissions.submit(data)}

    def cancel(self, job_id: str) -> Cancelled:
        return self._submissions.cancel(job_id)

    def rows(self, job_id: str, stream: str, after: int, chosen: str) -> dict[str, Any]:
        piece = self._submissions.rows_after(JobId(job_id), stream, after)
        return (piece or Piece(0)).signed(ROWS_KEY, f"{job_id}/{stream}/{chosen}")

    def client_lives(self, job_id: str, until_wall_ms: int) -> bool:
        return self._submissions.client_lives(JobId(job_id), max(0, until_wall_ms - wall_ms()))

    def stop(self) -> None:
        self._stopping.set()

    # ------------------------------------------------------------------ its life

    def run(self) -> str | None:
        """Serve until `stop`. Returns: why it had to end; None: it was stopped.

        Raises ConfigurationError: its REST server cannot start. ExternalError: the store of high availability cannot be used.
        """
        driver_log.start(log_settings_of(self._settings))
        with self._served() as address, self._led() as lease:
            if not self._stopping.is_set():
                self._submissions.start()
                self._recover()
                self._is_ready = True
                self._say(f"session at {address}; submit with `penstock run -m {_short(address)}`")
                self._watch(lease)
                self._is_ready = False
                self._end()
        return self._trouble

    @contextlib.contextmanager
    def _served(self) -> Generator[str]:
        self._modules.install()
        SESSION_PLACE.session = self
        try:
            address = address_of_server(self._settings)
            if address is None:
                raise ConfigurationError(
                    f"the session has no port for its REST server: those of "
                    f"{RestOptions.BIND_PORT.key} are taken. Set it to other ones."
                )
            yield address
        finally:
            SESSION_PLACE.session = None
            self._modules.uninstall()

    @contextlib.contextmanager
    def _led(self) -> Generator[LeaseKeeper | None]:
        """Wait for the lead of the cluster-id, and give it back at the end."""
        lease = None if self.election is None else self.await_lead(self.election)
        try:
            yield lease
        finally:
            if lease is not None:
                lease.abandon(is_wanted=False)
            if self.election is not None:
                self.election.store.close()

    def await_lead(self, election: Election) -> LeaseKeeper | None:
        """None: the session was stopped."""
        standby = Standby()
        while not self._stopping.is_set():
            try:
                lease = election.try_session(standby)
            except OSError as error:
                if standby.lease is None:
                    raise ExternalError(
                        f"high availability: cannot use its store: {error}"
                    ) from error
                lease = None
            if lease is not None:
                self._stands_by = False
                return lease
            if not self._stands_by and standby.watch.changes >= _SIGNS_OF_LIFE:
                self._stands_by = True
                assert standby.lease is not None
                self._say(f"session {standby.lease.owner} leads; this one stands by")
            self._stopping.wait(self._poll_s)
        return None

    def _recover(self) -> None:
        """Claim the jobs of drivers that are gone. Raises ExternalError: a job cannot be opened here."""
        if self.election is None:
            return
        pending = {key: Standby() for key in self.election.job_keys()}
        while pending and not self._stopping.is_set():
            claims: list[Claim] = []
            for key, standby in list(pending.items()):
                if self.election.store.find(key) is None or standby.watch.changes >= _SIGNS_OF_LIFE:
                    del pending[key]
                    continue
                found = self.election.try_claim(key, None, standby)
                if isinstance(found, Claim):
                    del pending[key]
                    claims.append(found)
            # Jobs run again first; what has ended is cleaned up after them.
            for claim in sorted(claims, key=lambda one: one.result is not None):
                self._submissions.recover(claim)
            if pending:
                self._stopping.wait(self._poll_s)

    @property
    def _poll_s(self) -> float:
        return _WATCH_S if self._ha is None else self._ha.poll_s

    def _watch(self, lease: LeaseKeeper | None) -> None:
        """Wait for the end; a session that has lost its lead ends."""
        while not self._stopping.wait(_WATCH_S):
            cause = None if lease is None else lease.lost()
            if cause is not None:
                self._fail("another session leads this cluster-id")

    def _fail(self, cause: str) -> None:
        self._trouble = self._trouble or cause
        _LOG.error("session ENDS cause=%s", cause)
        self.stop()

    def _end(self) -> None:
        if not self._submissions.close(_END_WAIT_S):
            self._say(f"some jobs have not ended within {_END_WAIT_S:.0f} s; the session ends now")


def session_settings(host: Host, defaults: Mapping[str, object]) -> Settings:
    """Return the settings of a session on this host: those of the command line, and of Spark."""
    given = host.command_line()
    spark = host.spark_configuration(Settings(command_line=given))
    return Settings(command_line=given, spark=spark, defaults=defaults)


def _short(address: str) -> str:
    return address.removeprefix("http://")
