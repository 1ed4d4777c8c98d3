"""Imports packages that only some programs need, with an error that says what to install."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from penstock.engine.model.errors import ConfigurationError


def extra(module: str, name: str, where: str) -> Any:
    """Imports `module`, which `pip install 'penstock[name]'` installs. `where`: who needs it, for the error.

    Raises: ConfigurationError: this Python does not have it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        parts = module.split(".")
        package = ".".join(parts[: 2 if parts[0] == "google" else 1])  # several share that name
        raise ConfigurationError(
            f"{where} needs the package {package!r}, but {sys.executable} does not have it: "
            f"{error}. Install it on the driver and on every executor: pip install "
            f"'penstock[{name}]'."
        ) from error
