"""`penstock history`: serves the archives of jobs that have ended."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping

from penstock.hosting.history.server import HistoryServer
from penstock.model.config import Settings
from penstock.model.options.history import HistoryServerOptions


def serve_history(options: argparse.Namespace, defined: Mapping[str, str]) -> int:
    """Serve until the process is interrupted, and return the exit code. `defined`: options of the command line."""
    given = dict(defined)
    if options.port is not None:
        given[HistoryServerOptions.PORT.key] = str(options.port)
    settings = Settings(command_line=given)
    configured = settings.get(HistoryServerOptions.DIRS) or ""
    named = [one.strip() for one in configured.split(",") if one.strip()]
    server = HistoryServer(options.directories or named, settings)
    count = "1 job" if server.jobs == 1 else f"{server.jobs} jobs"
    print(f"penstock: history of {count} at {server.address}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.run()
    return 0
