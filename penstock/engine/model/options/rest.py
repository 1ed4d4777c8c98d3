"""Options of the REST server and its clients, of archives, and of the history server.

Source: Flink RestOptions, WebOptions, JobManagerOptions, HistoryServerOptions. Differs: the default of rest.bind-port is a range, because a
machine may run several drivers.
"""

from penstock.engine.model.options.option import OptionGroup, duration, flag, size, text, whole


class RestOptions(OptionGroup, title="REST"):
    """The REST server of a driver: where it listens, and who may ask."""

    ENABLED = flag("penstock.rest.enabled")
    """Start the REST server with the first job. Not set: on Spark yes, in a MiniCluster no."""
    PORT = whole("rest.port", "8081")
    """The port. Used alone if it is set and rest.bind-port is not; 0: any free one."""
    BIND_PORT = text("rest.bind-port", "8081-8181", former="jobmanager.web.port web.port")
    """Ports to try, for example 50100-50200,51234. The first free one is taken."""
    BIND_ADDRESS = text("rest.bind-address", "localhost", former="jobmanager.web.address")
    """The address to listen at. One that other machines reach needs security.ssl.rest.enabled, and penstock.rest.token
    must be `always`."""
    ADDRESS = text("rest.address")
    """The name of this machine in addresses that are shown. Not set: that of rest.bind-address."""
    TOKEN = text("penstock.rest.token", "others")
    """Who must show the driver's token, to read too. `others`: processes that are not of the driver's user, or root's,
    on its machine. `always`: everybody. `never`: nobody; only on a loopback address."""
    SSL = flag("security.ssl.rest.enabled", "false")
    """Serve HTTPS. Needs security.ssl.rest.keystore."""
    KEYSTORE = text("security.ssl.rest.keystore")
    """A PEM file with the server's private key and its certificates. Flink has a Java keystore."""
    KEY_PASSWORD = text("security.ssl.rest.key-password")
    """The password of the private key, if it has one."""
    STORE_DURATION = duration("rest.async.store-duration", "5 min")
    """How long the result of an asynchronous operation is kept."""
    MAX_CONTENT = size("rest.server.max-content-length", "104857600")
    """Largest body of a request. A GET, and whoever has not proved to be the driver's user or to have the token, may send
    64 KiB."""


class ClientOptions(OptionGroup, title="Clients of a session"):
    """How a program with execution.target `remote` reaches its session, besides rest.address and rest.port."""

    TOKEN = text("penstock.rest.client.token")
    """The session's token. Not set: the one of a session of the same user on this machine."""
    CERTIFICATES = text("penstock.rest.client.certificates")
    """A PEM file with certificates to trust, for a session with HTTPS."""
    HEARTBEAT_INTERVAL = duration("client.heartbeat.interval", "30 s")
    """How often a client that collects rows reports to its session that it lives."""
    HEARTBEAT_TIMEOUT = duration("client.heartbeat.timeout", "3 min")
    """A session cancels a job whose rows are collected when its client has neither asked for rows nor said that it
    lives for so long."""


class WebOptions(OptionGroup, title="Dashboard"):
    """What the dashboard may do, and how long it shows jobs that have ended."""

    REFRESH_INTERVAL = duration(
        "web.refresh-interval", "3 s", former="jobmanager.web.refresh-interval"
    )
    """How often the dashboard asks for news."""
    CANCEL = flag("web.cancel.enable", "true")
    """The dashboard can cancel jobs."""
    RESCALE = flag("web.rescale.enable", "true")
    """The dashboard can rescale jobs."""
    SWITCHES = text("penstock.web.switches")
    """A folder of switches that the dashboard offers, for demonstrations: `NAME.text` says what a switch does, and
    `NAME.on` exists while it is on."""
    EXPIRATION = duration("jobstore.expiration-time", "3600 s")
    """How long a job that has ended is shown."""
    CAPACITY = whole("jobstore.max-capacity")
    """How many jobs that have ended are shown. Not set: all."""


class ArchiveOptions(OptionGroup, title="Archives of jobs"):
    """Where a job is archived when it has ended."""

    DIR = text("jobmanager.archive.fs.dir")
    """Folder, or URI of one, for an archive of each job that has ended. `penstock history` and Flink's history server
    read it. Not set: jobs are not archived."""


class HistoryServerOptions(OptionGroup, title="History server"):
    """What `penstock history` shows, and where. Set them with its `-D`."""

    DIRS = text("historyserver.archive.fs.dir")
    """Folders of archives, with commas between them, if the command names none."""
    REFRESH = duration("historyserver.archive.fs.refresh-interval", "10 s")
    """How often the folders are looked at for archives."""
    RETAINED_JOBS = whole("historyserver.archive.retained-jobs", "-1")
    """How many jobs are kept in each folder. The archives of older ones are removed from the folder. Jobs that Flink
    archived by application are not counted. -1: all are kept."""
    ADDRESS = text("historyserver.web.address", "localhost")
    """The address to listen at; a loopback address."""
    PORT = whole("historyserver.web.port", "8082")
    """The port. 0: any free one."""
    WEB_REFRESH = duration("historyserver.web.refresh-interval", "10 s")
    """How often the dashboard asks for news."""
