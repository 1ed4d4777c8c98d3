"""Options of hosts and ports.

Knows no reader. Source: Flink JobManagerOptions, TaskManagerOptions.
Differs: `penstock.*` keys are ours.
"""

from typing import Final

from penstock.model.options.option import OptionGroup, text


class JobManagerAddressOptions(OptionGroup, title="Address of the JobManager"):
    """Where TaskManagers dial the driver."""

    ADDRESS: Final = text(
        "jobmanager.rpc.address",
        None,
        "Where TaskManagers dial this driver; none: spark.driver.host.",
    )
    PORT: Final = text(
        "jobmanager.rpc.port",
        "0",
        "Its port: one, or ranges to choose from (50100-50110,50200). Each job has one of its "
        "own; 0: any that is free.",
    )
    BIND_PORT: Final = text(
        "jobmanager.rpc.bind-port",
        None,
        "Where it listens, if that is another port (behind a NAT); none: jobmanager.rpc.port.",
    )
    BIND_HOST: Final = text(
        "jobmanager.bind-host",
        None,
        "The address at which it listens; none: where Spark's own driver does.",
    )


class TaskManagerAddressOptions(OptionGroup, title="Addresses of TaskManagers"):
    """Where TaskManagers dial each other."""

    HOST: Final = text(
        "taskmanager.host",
        None,
        "Where other TaskManagers dial one: an address, or a network (10.1.0.0/16) in which "
        "each has its own; none: the address by which it reaches the driver.",
    )
    BIND_HOST: Final = text(
        "taskmanager.bind-host",
        None,
        "The address at which it listens; none: taskmanager.host.",
    )
    DATA_PORT: Final = text(
        "taskmanager.data.port",
        "0",
        "Its port: one, or ranges to choose from, for TaskManagers may share a host; 0: any "
        "that is free.",
    )
    DATA_BIND_PORT: Final = text(
        "taskmanager.data.bind-port",
        None,
        "Where it listens, if that is another port (behind a NAT); none: taskmanager.data.port.",
    )
