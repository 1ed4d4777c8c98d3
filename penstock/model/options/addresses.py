"""Options of hosts and ports.

Does not know their readers. Source: Flink JobManagerOptions, TaskManagerOptions. Differs: `penstock.*` keys are
Penstock's own.
"""

from typing import Final

from penstock.model.options.option import OptionGroup, text


class JobManagerAddressOptions(OptionGroup, title="Address of the JobManager"):
    """Where TaskManagers dial the driver."""

    ADDRESS: Final = text(
        "jobmanager.rpc.address",
        None,
        "Address at which TaskManagers dial this driver. Without it: `spark.driver.host`.",
    )
    PORT: Final = text(
        "jobmanager.rpc.port",
        "0",
        (
            "Port at which TaskManagers dial this driver: one port, or ranges such as "
            "`50100-50110,50200`. Each job has a port of its own. 0: any free port."
        ),
    )
    BIND_PORT: Final = text(
        "jobmanager.rpc.bind-port",
        None,
        (
            "Port at which the driver listens, if it differs from the dialled one (behind a NAT). "
            "Without it: jobmanager.rpc.port."
        ),
    )
    BIND_HOST: Final = text(
        "jobmanager.bind-host",
        None,
        ("Address at which the driver listens. Without it: the one where Spark's driver listens."),
    )


class TaskManagerAddressOptions(OptionGroup, title="Addresses of TaskManagers"):
    """Where TaskManagers dial each other."""

    HOST: Final = text(
        "taskmanager.host",
        None,
        (
            "Address at which other TaskManagers dial this one, or a network such as "
            "`10.1.0.0/16` in which each has an address. Without it: the address by which it "
            "reaches the driver."
        ),
    )
    BIND_HOST: Final = text(
        "taskmanager.bind-host",
        None,
        "Address at which a TaskManager listens. Without it: taskmanager.host.",
    )
    DATA_PORT: Final = text(
        "taskmanager.data.port",
        "0",
        (
            "Port for data: one port, or ranges, because several TaskManagers may share a host. "
            "0: any free port."
        ),
    )
    DATA_BIND_PORT: Final = text(
        "taskmanager.data.bind-port",
        None,
        (
            "Port at which a TaskManager listens, if it differs from the dialled one (behind a "
            "NAT). Without it: taskmanager.data.port."
        ),
    )
