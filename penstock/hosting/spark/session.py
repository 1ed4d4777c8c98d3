"""Finds the user's SparkSession, or starts the embedded one.

The embedded session is `local[n]`, bound to loopback, without a UI. Spark's log goes to a file,
because the console belongs to the job.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.hosting.shipping.interpreter import executable_of
from penstock.hosting.spark.log_folder import log_folder, remove_with
from penstock.model.config import Settings
from penstock.model.errors import ConfigurationError
from penstock.model.options.cluster import SparkOptions

_LOG_TAIL: Final = 4000
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


class _Embedded:
    """The one embedded session of this process."""

    session: SparkSession | None = None
    cores: int = 0
    lock = threading.RLock()  # Jobs may be submitted from several threads.


def active_session() -> SparkSession | None:
    """Return the user's session, even in a thread for which none is active. The embedded session does not count."""
    context = SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return None
    # An embedded session that is just being started is not in `_embedded` yet.
    with _Embedded.lock:
        ours = _Embedded.session
    if ours is not None and ours.sparkContext is context:
        return None
    spark = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    is_alive = spark is not None and spark.sparkContext is context
    return spark if is_alive else SparkSession(context)


def embedded_session(
    settings: Settings, cores: int, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the embedded session; started on first use, and again when a job needs more logical
    cores. `conf`: Spark settings.

    A session that somebody else has started meanwhile is used as it is, and never becomes ours.
    """
    with _Embedded.lock:
        running = _Embedded.session
        is_alive = running is not None and running.sparkContext._jsc is not None
        if running is not None and is_alive and cores <= _Embedded.cores:
            return running
        users = active_session()
        if users is not None:
            return users
        if running is not None and is_alive:
            running.stop()
        _Embedded.session = None
        _Embedded.session = _start(settings, max(cores, 2), conf or {})
        _Embedded.cores = max(cores, 2)
        return _Embedded.session


def give_away() -> None:
    """The embedded session is ours no longer: from now on it is used as it is, like a user's."""
    with _Embedded.lock:
        _Embedded.session = None


def _python_for(master: str, settings: Settings) -> str:
    """The interpreter of Spark's workers. With a local master they share one with the driver."""
    is_local = master.startswith("local")
    return (None if is_local else executable_of(settings)) or sys.executable


def _start(settings: Settings, cores: int, conf: Mapping[str, str]) -> SparkSession:
    ensure_java()
    master = settings.get(SparkOptions.MASTER) or f"local[{cores}]"
    # Otherwise Spark takes the python3 of PATH.
    os.environ.setdefault("PYSPARK_PYTHON", _python_for(master, settings))
    _refuse_connect(master)
    folder = log_folder()
    named = settings.get(SparkOptions.LOG_FILE)
    log_file = Path(named).absolute() if named else folder / "spark.log"
    until = "" if named else ", until the program ends"
    print(
        f"penstock: starting embedded Spark ({master}); its log{until}: {log_file}", file=sys.stderr
    )
    builder = SparkSession.builder.master(master).appName("penstock")
    for key, value in (_embedded_configuration(folder, log_file, master) | dict(conf)).items():
        builder = builder.config(key, value)
    with _errors_to(log_file):
        session = builder.getOrCreate()
        remove_with(session.sparkContext)
        return session


@contextlib.contextmanager
def _errors_to(log_file: Path) -> Generator[None, None, None]:
    """Permanently redirect stderr of the JVM and Python workers that are started inside to the log.

    Other threads that write to stderr during these seconds are redirected too. Raises
    ConfigurationError with the end of the log if the session does not start.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    os.close(log)
    try:
        yield
    except Exception as error:
        tail = log_file.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:]
        raise ConfigurationError(f"embedded Spark did not start: {error}\n{tail}") from error
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _refuse_connect(master: str) -> None:
    """Raises ConfigurationError."""
    remote = os.environ.get("SPARK_REMOTE")
    if remote or master.startswith("sc://"):
        raise ConfigurationError(
            f"this is a Spark Connect client ({remote or master}), which has no SparkContext "
            "and so cannot run TaskManagers or stages. Unset SPARK_REMOTE, and run the "
            "program as a driver of the cluster: give its master (spark://, yarn, k8s://) by "
            "--master, or use spark-submit."
        )


def _embedded_configuration(folder: Path, log_file: Path, master: str) -> dict[str, str]:
    """Return the session's configuration. `folder`: for its files. On a cluster's master, Spark finds the driver's address by itself."""
    log4j = folder / "log4j.properties"
    log4j.write_text(_LOG4J.format(log_file=log_file), encoding="utf-8")
    is_local = master.startswith("local")
    places = dict.fromkeys(("spark.driver.bindAddress", "spark.driver.host"), "127.0.0.1")
    return (places if is_local else {}) | {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile=file:{log4j} -XX:TieredStopAtLevel=1"
        ),
        "spark.python.worker.reuse": "true",
    }


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
        f"PATH: {_told(on_path, version)}). Install it (Debian: apt-get install openjdk-17-jre-headless; "
        "macOS: brew install openjdk@17) or set JAVA_HOME."
    )


def _told(java: str | None, version: int | None) -> str:
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
