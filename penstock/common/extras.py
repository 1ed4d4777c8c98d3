"""Packages that only some programs need: imported where they are used, with an error that says what to install."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from penstock.model.errors import ConfigurationError


def extra(module: str, name: str, where: str) -> Any:
    """`module`, which `pip install 'penstock[name]'` brings. `where`: who needs it, for the error.

    Raises: ConfigurationError: this Python does not have it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".", maxsplit=1)[0]
        raise ConfigurationError(
            f"{where} needs the package {package!r}, which {sys.executable} does not have: {error}. Install it on the "
            f"driver and on every executor: pip install 'penstock[{name}]'."
        ) from error
