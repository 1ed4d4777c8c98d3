"""Finding the user's SparkSession, or starting the embedded one.

The embedded session is `local[n]`, bound to loopback, without a UI; Spark's log goes to a file, so that the
console belongs to the job.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.model.config import Settings
from penstock.model.errors import ConfigurationError

_LOG_TAIL: Final = 4000
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


def active_session() -> SparkSession | None:
    """The user's session, also from a thread in which none is marked active. Ours does not count."""
    context = SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return None
    ours = _Embedded.session
    if ours is not None and ours.sparkContext is context:
        return None
    spark = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    is_alive = spark is not None and spark.sparkContext is context
    return spark if is_alive else SparkSession(context)


def embedded_session(settings: Settings, cores: int) -> SparkSession:
    """Started on first use; started anew when a job needs more logical cores than it has."""
    running = _Embedded.session
    if running is not None and running.sparkContext._jsc is not None and cores <= _Embedded.cores:
        return running
    if running is not None:
        running.stop()
    _require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark takes PATH's python3
    cores = max(cores, 2)
    master = settings.get_str("penstock.spark.master") or f"local[{cores}]"
    log_file = _log_file(settings)
    print(f"penstock: starting embedded Spark ({master}); its log: {log_file}", file=sys.stderr)
    builder = SparkSession.builder.master(master).appName("penstock")
    for key, value in _embedded_configuration(log_file).items():
        builder = builder.config(key, value)
    with _errors_to(log_file):
        _Embedded.session = builder.getOrCreate()
    _Embedded.cores = cores
    return _Embedded.session


@contextlib.contextmanager
def _errors_to(log_file: Path) -> Generator[None, None, None]:
    """The JVM that is started inside, and its Python workers, write their stderr to the log for good.

    Threads of ours that write to stderr in these seconds do so too. Raises ConfigurationError with the log's
    end when the session does not start.
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


def _embedded_configuration(log_file: Path) -> dict[str, str]:
    log4j = log_file.with_suffix(".properties")
    log4j.write_text(_LOG4J.format(log_file=log_file), encoding="utf-8")
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(log_file.parent / "warehouse"),
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile=file:{log4j} -XX:TieredStopAtLevel=1"
        ),
        "spark.python.worker.reuse": "true",
    }


def _log_file(settings: Settings) -> Path:
    named = settings.get_str("penstock.spark.log-file")
    if named:
        return Path(named).absolute()
    return Path(tempfile.mkdtemp(prefix="penstock-spark-")) / "spark.log"


def _require_java() -> None:
    """Say what is missing before PySpark's own 'Java gateway process exited'."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        raise ConfigurationError(
            f"Spark needs Java 17 or newer, and none was found ({java or 'no java on PATH'}). "
            "Install it (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install "
            "openjdk@17) or set JAVA_HOME."
        )
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = _java_major(answer.stderr)
    if version is not None and version < 17:
        raise ConfigurationError(
            f"Spark needs Java 17 or newer; {java} is Java {version}. Set JAVA_HOME to a newer one."
        )


def _java_major(text: str) -> int | None:
    for word in text.split('"')[1:2]:
        head = word.split(".")
        major = head[1] if head[0] == "1" else head[0]
        return int(major) if major.isdigit() else None
    return None
