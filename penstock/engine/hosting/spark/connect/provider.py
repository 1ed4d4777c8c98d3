"""The provider of a job whose program is a Spark Connect client: each TaskManager has a Spark task, which ends with it."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engine.hosting.network.wire.addresses import Addresses, Endpoint
from penstock.engine.hosting.provider import HostChanges, HostLoss, MasterAddress, OnEnded
from penstock.engine.hosting.shipping.program_files import bring_files
from penstock.engine.hosting.spark.background_jobs import BackgroundJobs
from penstock.engine.hosting.spark.connect.cluster import ConnectCluster
from penstock.engine.hosting.spark.provider import OneTaskEach, has_executor_log
from penstock.engine.model.errors import NoResourceAvailable
from penstock.engine.model.program import ProgramSettings
from penstock.engine.model.slot_size import SlotSize


class ConnectProvider(OneTaskEach):
    """As the port."""

    def __init__(
        self,
        cluster: ConnectCluster,
        slots: int,
        switch_interval_s: float | None,
        addresses: Addresses,
    ) -> None:
        super().__init__(slots, switch_interval_s, addresses)
        self._cluster = cluster
        self._granted = cluster.total
        self.background_jobs = BackgroundJobs(cluster, "")

    @property
    def is_local(self) -> bool:
        """Never: what one executor shares with this machine, another may not."""
        return False

    @property
    def _has_executor_log(self) -> bool:
        return has_executor_log(self._cluster.master)

    @property
    def shares_files(self) -> bool:
        return False

    @property
    def control_endpoint(self) -> Endpoint:
        return self._cluster.endpoint(self._addresses)

    def max_taskmanagers(self, wanted: int | None = None) -> int | None:
        """As the port. With `wanted`, waits some seconds for executors that are about to come."""
        if wanted is not None:
            self._granted = self._cluster.free(wanted, self.control_endpoint)
        return self._granted

    def task_slots_for(self, taskmanagers: Mapping[SlotSize, int]) -> int:
        if any(taskmanagers):
            raise NoResourceAvailable(
                "the job asks for slots of a size (a SlotSharingGroup with cores or memory), and a "
                "Spark Connect client cannot ask for tasks of a size. Leave the sizes out, or run "
                "the program as a driver of the cluster (spark-submit)."
            )
        return sum(taskmanagers.values())

    def bring_files(self, program: ProgramSettings, modules: bytes = b"") -> None:
        self.worker_files = bring_files(self._cluster, program)

    def gone(self) -> str | None:
        return self._cluster.gone()

    def describe(self) -> str:
        return self._cluster.describe()

    def changes(self) -> HostChanges:
        return HostChanges()  # Connect does not say which executors there are.

    def why_gone(self, executor: str) -> HostLoss | None:
        return None  # As above.

    def open(self, master: MasterAddress, on_ended: OnEnded) -> None:
        self.master_address = master
        self.on_ended = on_ended
        self.background_jobs.group = master.credentials.cluster_id[:8]
        self.package = self._cluster.package

    def close(self) -> None:
        """End all. Never raises."""
        self.end_tasks()
