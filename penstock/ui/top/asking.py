"""Asks drivers for what `penstock top` shows. Knows no terminal."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any, Final

from penstock.hosting.remote.client import RemoteError, RestClient
from penstock.ui.remote.targets import ENDED, clients
from penstock.ui.top.facts import (
    Counters,
    Frame,
    JobPage,
    JobRow,
    checkpoint_row,
    counters_of,
    job_row,
    lag_of,
    vertex_rows,
    with_shares,
)

_MOST_ASKED: Final = 50
"""Of how many vertices watermarks are asked for, with a request each."""


class Asking:
    """One look after the other. One thread calls it."""

    def __init__(self, options: argparse.Namespace) -> None:
        """`options`: which drivers."""
        self._options = options
        self._former: dict[str, dict[str, Counters]] = {}

    def frame(self, opened: str | None) -> Frame:
        """Return everything as it is now. `opened`: the id of the job that is shown in full."""
        rows: list[JobRow] = []
        page, problem = None, ""
        try:
            asked = clients(self._options)
        except RemoteError as error:
            return Frame(problem=str(error))
        for client in asked:
            try:
                told = client.get("/jobs/overview")["jobs"]
                found = [job_row(one, client.address) for one in told]
                rows += found
                here = next((one for one in found if one.job_id == opened), None)
                page = page if here is None else self._page(client, here)
            except RemoteError as error:  # It may have ended; the others go on.
                problem = str(error)
        if opened is not None and page is None and not problem:
            problem = f"job {opened} is gone"
        return Frame(tuple(rows), page, problem)

    def _page(self, client: RestClient, row: JobRow) -> JobPage:
        path = f"/jobs/{row.job_id}"
        details = client.get(path)
        vertices = vertex_rows(details, self._former.get(row.job_id, {}))
        self._former = {row.job_id: counters_of(details)}
        told = _if_there(client, f"{path}/bottleneck")
        if told is not None:
            vertices = with_shares(vertices, told)
        if row.status not in ENDED:
            lags = {
                one.vertex_id: lag_of(
                    client.get(f"{path}/vertices/{one.vertex_id}/watermarks"), details["now"]
                )
                for one in vertices[:_MOST_ASKED]
            }
            vertices = tuple(replace(one, lag_ms=lags.get(one.vertex_id)) for one in vertices)
        checkpoints = _if_there(client, f"{path}/checkpoints")
        return JobPage(
            row,
            vertices,
            "" if told is None else told["sentence"],
            None if checkpoints is None else checkpoint_row(checkpoints, details["now"]),
        )


def _if_there(client: RestClient, path: str) -> Any | None:
    """Return an answer; None: this job or this server has none. Raises RemoteError."""
    try:
        return client.get(path)
    except RemoteError as error:
        if error.status == 404:
            return None
        raise
