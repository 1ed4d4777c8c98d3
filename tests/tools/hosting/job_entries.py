"""What the holder of a job writes into its store."""

from penstock.engine.hosting.jobmanager.ha.store import Ended
from penstock.engine.machines.leases import Lease


def lease(owner: str) -> Lease:
    return Lease(0, owner, "job-1", "word count", 0, 1000)


def ended(entry) -> Ended:
    return Ended(entry.token, "job-1", "FINISHED", 5)
