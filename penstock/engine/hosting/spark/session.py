"""The Spark session of this process: the user's, one on the master that a launcher has named, or the embedded one.

Whoever names a master gets it: `penstock.spark.master` (`--master`), then what Spark itself reads: spark-submit,
PYSPARK_SUBMIT_ARGS, spark-defaults.conf. The embedded session starts only where nobody has. It is `local[n]`, bound to
loopback, without a UI; Spark's log goes to a file, because the console belongs to the job.

The folder of the embedded Spark: its log and its settings. It goes when the program ends, however that ends.

Spark's JVM, which outlives Python by a moment, removes it too, also when Python was killed. `engine/hosting/os/private_files.py`
has the rest.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from penstock.engine.hosting.os.private_files import OwnFolder
from penstock.engine.hosting.shipping.interpreter import executable_of
from penstock.engine.hosting.spark.class_archive import java_option
from penstock.engine.hosting.taskmanager.child import KEPT_BLOCKS
from penstock.engine.model.config import PENSTOCK_PREFIX, SPARK_PREFIX, Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.cluster import SparkOptions

_OWN: Final = OwnFolder("penstock-spark-")


def log_folder() -> Path:
    """Return the folder of this process; it is made on first use. Not thread-safe."""
    return _OWN.made()


def remove_with(context: SparkContext) -> None:
    """Have the JVM of this context remove the folder when it ends, after all that Spark does then."""
    jvm = context._jvm
    if _OWN.folder is None or jvm is None:
        return
    folder = jvm.java.io.File(str(_OWN.folder))
    # An internal class of Spark. Without it the next program cleans up.
    with contextlib.suppress(Exception):
        jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(folder)


UNNAMED: Final = "local[unnamed]"
"""The master that Spark's JVM reports where nobody has named one."""
_MASTER: Final = "spark.master"
_OPTIONS: Final = SPARK_PREFIX + PENSTOCK_PREFIX
_SHELL: Final = "pyspark-shell"
"""The name that Spark gives an application that has none."""
_LOG_TAIL: Final = 4000
LATE_S: Final = 30
_IMPORTED_LATE: Final = "pyspark.testing.utils"
"""PySpark imports it, and with it pandas where that is installed, for the first argument that it gives to the JVM."""
_REFUSED_PODS: Final = re.compile(
    r"KubernetesClientException: Failure executing: .*? Message: (.*?)\. Received status", re.DOTALL
)
"""Kubernetes refuses a driver's pods: by a quota, or for want of rights. Spark only logs it, and ends."""
_JAVA_MIN: Final = 17
_BREW_PREFIXES: Final = ("/opt/homebrew", "/usr/local", "/home/linuxbrew/.linuxbrew")
_LOG4J: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log_file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
"""


class Embedded:
    """The one embedded session of this process, and its JVM."""

    session: SparkSession | None = None
    cores: int = 0
    log_file: Path | None = None  # Of the JVM that this module has started.
    log_begun: int = 0  # A log that the user has named has what former programs wrote.
    is_unnamed: bool = False  # Nobody has named a master when the JVM was started.
    lock = threading.RLock()  # Jobs may be submitted from several threads.


def active_session() -> SparkSession | None:
    """Return the user's session, even in a thread for which none is active. The embedded session does not count."""
    context = SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return None
    # An embedded session that is just being started is not in `Embedded` yet.
    with Embedded.lock:
        ours = Embedded.session
    if ours is not None and ours.sparkContext is context:
        return None
    spark = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    is_alive = spark is not None and spark.sparkContext is context
    return spark if is_alive else SparkSession(context)


def session_for(settings: Settings, cores: int, conf: Mapping[str, str]) -> SparkSession:
    """Return the user's session, the one on the named master, or an embedded one with `cores`
    logical cores.

    The first two are used as they are. The embedded one starts anew when a job needs more cores.
    `conf`: Spark settings of the command line. Raises ConfigurationError: it does not start.
    """
    with Embedded.lock:
        running = Embedded.session
        is_alive = running is not None and running.sparkContext._jsc is not None
        if running is not None and is_alive and cores <= Embedded.cores:
            return running
        users = active_session()
        if users is not None:
            return users
        if running is not None and is_alive:
            running.stop()
        Embedded.session = None
        started, is_embedded = _start(settings, max(cores, 2), conf)
        if is_embedded:
            Embedded.session, Embedded.cores = started, max(cores, 2)
        return started


def names_master(settings: Settings, conf: Mapping[str, str]) -> bool:
    """Return whether somebody has named the master of a session that starts now."""
    return _named_master(settings, launched_configuration(settings, conf)) is not None


def launched_configuration(settings: Settings, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration that a session starts with: Spark's own, with `conf` over it.

    Spark's JVM knows what spark-submit, PYSPARK_SUBMIT_ARGS and spark-defaults.conf have set. It starts here if this
    process has none. Raises ConfigurationError: it does not start.
    """
    with Embedded.lock:
        if SparkContext._gateway is None:
            _start_jvm(settings, conf)
        found = dict(SparkConf().getAll())
        if found.get(_MASTER) == UNNAMED:
            # A session of the user's own must not meet this master: it gets Spark's default.
            jvm: Any = SparkContext._jvm
            jvm.java.lang.System.setProperty(_MASTER, "local[*]")
            Embedded.is_unnamed = True
        if Embedded.is_unnamed:
            del found[_MASTER]
        return found | dict(conf)


def give_away() -> None:
    """The embedded session is ours no longer: from now on it is used as it is, like a user's."""
    with Embedded.lock:
        Embedded.session = None


def _named_master(settings: Settings, launched: Mapping[str, str]) -> str | None:
    return settings.get(SparkOptions.MASTER) or launched.get(_MASTER)


def python_for(master: str, settings: Settings) -> str:
    """The interpreter of Spark's workers. With a local master they share one with the driver."""
    is_local = master.startswith("local")
    return (None if is_local else executable_of(settings)) or sys.executable


def _start_jvm(settings: Settings, conf: Mapping[str, str]) -> None:
    """Start Spark's JVM, or reach the one that spark-submit has started. Not thread-safe."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()
        return
    _refuse_connect(settings.get(SparkOptions.MASTER) or conf.get(_MASTER) or "")
    ensure_java()
    log_file = _log_file(settings)
    # Spark keeps these for all sessions of this JVM; Penstock's own options are for one run.
    early = [(key, value) for key, value in conf.items() if not key.startswith(_OPTIONS)]
    variables = {
        # Spark asks this one last, after its flags, properties and files.
        "MASTER": os.environ.get("MASTER", UNNAMED),
        "SPARK_SUBMIT_OPTS": f"{_java_options(log_file)} {os.environ.get('SPARK_SUBMIT_OPTS', '')}",
    }
    former = {key: os.environ.get(key) for key in variables}
    os.environ.update(variables)
    try:
        with errors_to(log_file), _imported_meanwhile(_IMPORTED_LATE):
            SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(early))
    finally:
        for key, value in former.items():
            os.environ.pop(key) if value is None else os.environ.update({key: value})
    Embedded.log_file = log_file


@contextlib.contextmanager
def _imported_meanwhile(module: str) -> Generator[None, None, None]:
    """Import a module on another thread during the block, which waits for a process."""
    thread = threading.Thread(target=importlib.import_module, args=(module,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _start(settings: Settings, cores: int, conf: Mapping[str, str]) -> tuple[SparkSession, bool]:
    """Start a session. Returns it, and whether it is embedded: nobody has named a master."""
    launched = launched_configuration(settings, conf)
    named = _named_master(settings, launched)
    master = named or f"local[{cores}]"
    _refuse_connect(master)
    if master == "yarn":
        _check_hadoop()
    python = launched.get("spark.pyspark.python")
    if (
        python is not None
    ):  # PySpark reads the variable only; Spark's launcher sets it in the same way.
        os.environ["PYSPARK_PYTHON"] = python
    else:  # Otherwise Spark takes the python3 of PATH.
        os.environ.setdefault("PYSPARK_PYTHON", python_for(master, settings))
    what = f"embedded Spark ({master})" if named is None else f"Spark on master {master}"
    print(f"penstock: starting {what}{_log_to(settings)}", file=sys.stderr)
    builder = SparkSession.builder.config(map=default_conf(launched, master) | dict(conf))
    with errors_to(Embedded.log_file):
        session = builder.master(master).getOrCreate()
    context = session.sparkContext
    # Of the Python workers alone: spark.executorEnv would change Spark's JVMs, too.
    usual = {name: value for name, value in KEPT_BLOCKS.items() if name not in os.environ}
    context.environment = usual | context.environment
    remove_with(context)
    return session, named is None


def _log_file(settings: Settings) -> Path:
    named = settings.get(SparkOptions.LOG_FILE)
    return Path(named).absolute() if named else log_folder() / "spark.log"


def _log_to(settings: Settings) -> str:
    """Have Spark log to the file of these settings, and return the end of the line that says so."""
    named, log_file = settings.get(SparkOptions.LOG_FILE), Embedded.log_file
    if log_file is None and named is None:
        return ""  # The JVM of spark-submit logs where Spark's own settings say.
    wanted = _log_file(settings)
    jvm: Any = SparkContext._jvm
    if wanted != log_file:
        place = jvm.java.net.URI(_log4j(wanted).as_uri())
        jvm.org.apache.logging.log4j.core.config.Configurator.reconfigure(place)
        Embedded.log_file = wanted
    until = "" if named else ", until the program ends"
    return f"; its log{until}: {wanted}"


@contextlib.contextmanager
def errors_to(log_file: Path | None) -> Generator[None, None, None]:
    """Permanently redirect stderr of the JVM and Python workers that are started inside to the log. None: leave it.

    Other threads that write to stderr during these seconds are redirected too. Raises
    ConfigurationError if Spark does not start: with Java's reason and a copy of the log, which would go with the
    program, or with the end of the log if no Java lives to say why.
    """
    with contextlib.ExitStack() as redirected:
        if log_file is not None:
            Embedded.log_begun = log_file.stat().st_size if log_file.exists() else 0
            redirected.enter_context(_redirected(log_file))
        try:
            yield
        except Exception as error:  # Py4J's and PySpark's errors have no base of their own.
            java = getattr(error, "java_exception", None)
            what = str(error)
            if java is not None:  # Frames of the server's own may stand in its message.
                what = str(java.getMessage() or java.toString()).partition("\n\tat ")[0]
            if log_file is not None:
                text = _logged(log_file)
                if "stopped" in what:
                    what = _refused_pods(text) or what
                what += (
                    f"\n{text[-_LOG_TAIL:]}" if java is None else f"\nIts log: {_kept(log_file)}"
                )
            raise ConfigurationError(f"Spark did not start: {what}") from error


def _logged(log_file: Path) -> str:
    """What Spark has written since it was started."""
    return log_file.read_bytes()[Embedded.log_begun :].decode(errors="replace")


def _refused_pods(text: str) -> str:
    """The API server's words; "": there are none."""
    return "".join(_REFUSED_PODS.findall(text)[-1:])


def why_it_ended() -> str:
    """Return why Spark has ended a session that was there, as far as its log says; "": unknown. Never raises."""
    try:
        return "" if Embedded.log_file is None else _refused_pods(_logged(Embedded.log_file))
    except OSError:
        return ""


def _kept(log_file: Path) -> Path:
    """Return the log, or a copy of it where it would go with the program."""
    if log_file.parent != _OWN.folder:
        return log_file
    file, name = tempfile.mkstemp(prefix="spark-did-not-start-", suffix=".log")
    with open(file, "wb") as copy:
        copy.write(log_file.read_bytes())
    return Path(name)


@contextlib.contextmanager
def _redirected(log_file: Path) -> Generator[None, None, None]:
    """Have stderr go to the log, and say on the terminal where the block takes long.

    Spark asks a master that does not answer for minutes, and logs nothing.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    text = (
        f"penstock: Spark has not started after {LATE_S} s: its master starts slowly, or nobody "
        f"answers there. Spark asks on, and Ctrl-C ends it; its log: {log_file}\n"
    )
    late = threading.Timer(LATE_S, os.write, (saved, text.encode()))
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    os.close(log)
    late.start()
    try:
        yield
    finally:
        late.cancel()
        late.join()
        os.dup2(saved, 2)
        os.close(saved)


def _refuse_connect(master: str) -> None:
    """Raises ConfigurationError."""
    remote = os.environ.get("SPARK_REMOTE")
    if remote or master.startswith("sc://"):
        raise ConfigurationError(
            f"{(remote or master).partition('/;')[0]} is a Spark Connect server, whose clients "
            "have no SparkContext, and this needs one. Unset SPARK_REMOTE, and name the cluster's "
            "own master (spark://, yarn, k8s://) by --master."
        )


def _check_hadoop() -> None:
    """Ask the JVM, which also knows what spark-env.sh has set. Raises ConfigurationError."""
    jvm: Any = SparkContext._jvm
    if not any(map(jvm.java.lang.System.getenv, ("HADOOP_CONF_DIR", "YARN_CONF_DIR"))):
        raise ConfigurationError(
            "Spark's master is yarn, and neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set, so "
            "Spark would look for the ResourceManager on this machine. Set HADOOP_CONF_DIR to the "
            "folder that has the cluster's core-site.xml and yarn-site.xml."
        )


def _log4j(log_file: Path) -> Path:
    """Write log4j's configuration, and return its place."""
    log4j = log_folder() / "log4j.properties"
    log4j.write_text(_LOG4J.format(log_file=log_file), encoding="utf-8")
    return log4j


def _java_options(log_file: Path) -> str:
    place = f"file:{_log4j(log_file)}"
    return f'"-Dlog4j2.configurationFile={place}" -XX:TieredStopAtLevel=1 {java_option()}'


def default_conf(launched: Mapping[str, str], master: str) -> dict[str, str]:
    """Return the settings of Spark that Penstock adds where the launcher sets none."""
    found = {}
    if Embedded.log_file is not None:  # Spark's bar would cover the console of the job.
        found["spark.ui.showConsoleProgress"] = "false"
    if launched.get("spark.app.name", _SHELL) == _SHELL:
        found["spark.app.name"] = "penstock"
    usual = {}
    if master.startswith("local"):  # On a cluster Spark finds the driver's address by itself.
        usual = {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.warehouse.dir": str(log_folder() / "warehouse"),
        }
    elif master.startswith("k8s"):
        usual = {
            # Else executors of one core follow one that was killed for its memory, and no task fits.
            "spark.kubernetes.allocation.recoveryMode.enabled": "false",
            # Penstock waits for executors itself, and says what keeps them.
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "0s",
        }
    found |= {key: value for key, value in usual.items() if key not in launched}
    return found


def ensure_java() -> None:
    """Make sure that there is a Java that Spark can use, and report a missing one better than
    PySpark does.

    A `JAVA_HOME` without Java gives way to a Java that is found (scripts/ensure-java does the
    same). Homebrew's openjdk, which is never on PATH, is found. A named Java that is too old is an
    error. Raises ConfigurationError.
    """
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    named = Path(home) / "bin" / "java" if home else Path(on_path or "java")
    version = java_major(named)
    if version is not None and version >= _JAVA_MIN:
        return
    if home and version is not None:
        raise ConfigurationError(
            f"Spark needs Java {_JAVA_MIN} or newer; {named} is Java {version}. Set JAVA_HOME to a newer one."
        )
    others = [Path(on_path)] if on_path else []
    for java in [*others, *(Path(keg) / "bin" / "java" for keg in _kegs())]:
        if (java_major(java) or 0) >= _JAVA_MIN:
            found = str(java.resolve().parent.parent)
            print(f"penstock: JAVA_HOME is {home or 'not set'}; using {found}", file=sys.stderr)
            os.environ["JAVA_HOME"] = found
            return
    raise ConfigurationError(
        f"Spark needs Java {_JAVA_MIN} or newer, and none was found (JAVA_HOME: {home or 'not set'}; on "
        f"PATH: {_java_text(on_path, version)}). Install it (Debian: apt-get install openjdk-17-jre-headless; "
        "macOS: brew install openjdk@17) or set JAVA_HOME."
    )


def _java_text(java: str | None, version: int | None) -> str:
    return f"{java} is Java {version}" if java and version else java or "no java"


def _kegs() -> list[str]:
    """Return where Homebrew keeps its Java, on macOS and Linux."""
    return [
        f"{prefix}/opt/{formula}{inside}"
        for prefix in _BREW_PREFIXES
        for formula in ("openjdk@17", "openjdk@21", "openjdk")
        for inside in ("/libexec/openjdk.jdk/Contents/Home", "/libexec")
    ]


def java_major(java: Path) -> int | None:
    """Return the major version; None: no Java runs there (macOS has a `java` that only says so)."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    said = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if said is None or answer.returncode != 0:
        return None
    return int(said[2]) if said[1] == "1" and said[2] else int(said[1])
