"""The folder of the embedded Spark: its log and its settings. It goes when the program ends, however that ends.

Spark's JVM, which outlives Python by a moment, removes it too, also when Python was killed. `engine/hosting/os/own_folder.py`
has the rest.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from pyspark import SparkContext

from penstock.engine.hosting.os.own_folder import OwnFolder

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
