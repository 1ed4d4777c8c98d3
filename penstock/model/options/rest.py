"""Options of the REST server, and of how long it knows jobs that have ended.

Does not know their readers. Source: Flink RestOptions, WebOptions, JobManagerOptions; differs: `penstock.*` keys are Penstock's own, and
the default of rest.bind-port is a range, because a machine may run several drivers.
"""

from typing import Final

from penstock.model.options.option import OptionGroup, duration, flag, size, text, whole


class RestOptions(OptionGroup, title="REST"):
    """The REST server of a driver: where it listens, and who may ask."""

    ENABLED: Final = flag(
        "penstock.rest.enabled",
        None,
        "Start the REST server with the first job. Not set: on Spark yes, in a MiniCluster no.",
    )
    PORT: Final = whole(
        "rest.port",
        "8081",
        "The port. Used alone if it is set and rest.bind-port is not; 0: any free one.",
    )
    BIND_PORT: Final = text(
        "rest.bind-port",
        "8081-8181",
        "Ports to try, for example 50100-50200,51234. The first free one is taken.",
        former_keys=(
            "jobmanager.web.port",
            "web.port",
        ),
    )
    BIND_ADDRESS: Final = text(
        "rest.bind-address",
        "localhost",
        (
            "The address to listen at. One that other machines reach needs "
            "security.ssl.rest.enabled, "
            "and penstock.rest.token must be `always`."
        ),
        former_keys=("jobmanager.web.address",),
    )
    ADDRESS: Final = text(
        "rest.address",
        None,
        "The name of this machine in addresses that are shown. Not set: that of rest.bind-address.",
    )
    TOKEN: Final = text(
        "penstock.rest.token",
        "others",
        (
            "Who must show the driver's token with a request that changes something. `others`: "
            "processes that are not of the driver's user on its machine. `always`: everybody. "
            "`never`: nobody; only on a loopback address."
        ),
    )
    SSL: Final = flag(
        "security.ssl.rest.enabled", "false", "Serve HTTPS. Needs security.ssl.rest.keystore."
    )
    KEYSTORE: Final = text(
        "security.ssl.rest.keystore",
        None,
        "A PEM file with the server's private key and its certificates. Flink has a Java keystore.",
    )
    KEY_PASSWORD: Final = text(
        "security.ssl.rest.key-password", None, "The password of the private key, if it has one."
    )
    STORE_DURATION: Final = duration(
        "rest.async.store-duration",
        "5 min",
        "How long the result of an asynchronous operation is kept.",
    )
    MAX_CONTENT: Final = size(
        "rest.server.max-content-length", "104857600", "Largest body of a request."
    )


class ClientOptions(OptionGroup, title="Clients of a session"):
    """How a program with execution.target `remote` reaches its session, besides rest.address and rest.port."""

    TOKEN: Final = text(
        "penstock.rest.client.token",
        None,
        "The session's token. Not set: the one of a session of the same user on this machine.",
    )
    CERTIFICATES: Final = text(
        "penstock.rest.client.certificates",
        None,
        "A PEM file with certificates to trust, for a session with HTTPS.",
    )
    HEARTBEAT_INTERVAL: Final = duration(
        "client.heartbeat.interval",
        "30 s",
        "How often a client that collects rows tells its session that it lives.",
    )
    HEARTBEAT_TIMEOUT: Final = duration(
        "client.heartbeat.timeout",
        "3 min",
        (
            "A session cancels a job whose rows are collected when its client has neither asked "
            "for rows nor said that it lives for so long."
        ),
    )


class WebOptions(OptionGroup, title="Dashboard"):
    """What the dashboard may do, and how long it shows jobs that have ended."""

    REFRESH_INTERVAL: Final = duration(
        "web.refresh-interval",
        "3 s",
        "How often the dashboard asks for news.",
        former_keys=("jobmanager.web.refresh-interval",),
    )
    CANCEL: Final = flag("web.cancel.enable", "true", "The dashboard can cancel jobs.")
    RESCALE: Final = flag("web.rescale.enable", "true", "The dashboard can rescale jobs.")
    SWITCHES: Final = text(
        "penstock.web.switches",
        None,
        (
            "A folder of switches that the dashboard offers, for demonstrations: `NAME.text` says "
            "what a switch does, and `NAME.on` exists while it is on."
        ),
    )
    EXPIRATION: Final = duration(
        "jobstore.expiration-time", "3600 s", "How long a job that has ended is shown."
    )
    CAPACITY: Final = whole(
        "jobstore.max-capacity", None, "How many jobs that have ended are shown. Not set: all."
    )
