"""The environment of this process. Source: Flink EnvironmentInfo; differs: Python in the place of the JVM, modules in that of classes."""

from __future__ import annotations

import platform
import sys
from typing import Any

from penstock.engine.model.texts.redaction import without_credentials


def environment() -> dict[str, Any]:
    """Return what `/jobmanager/environment` tells, without secrets."""
    version = f"Python {platform.python_version()} ({platform.python_implementation()})"
    options = [without_credentials(option) for option in sys.orig_argv[1:]]
    return {
        "jvm": {"version": version, "arch": platform.machine(), "options": options},
        "classpath": [str(one) for one in sys.path],
    }
