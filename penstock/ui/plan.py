"""`penstock plan`: prints what would run where, instead of running a program's job."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.compiler.job_graph_builder import build_job_graph
from penstock.hosting.jobmanager.handle import JobHandle
from penstock.hosting.shipping.pickling import serialize
from penstock.machines.books.job_settings import job_settings_of
from penstock.machines.planning.cluster_shape import ClusterShape, alike, parse_shape
from penstock.machines.planning.plan import render_loss
from penstock.machines.planning.planner import plan_loss, plan_on
from penstock.model.config import Settings
from penstock.model.graph.stream_graph import StreamGraph
from penstock.model.ids import JobId
from penstock.model.options.scheduling import SchedulingOptions
from penstock.model.program import ProgramSettings

_PLAN_JOB_ID: Final = JobId("0" * 32)


class PlanShown(BaseException):
    """Raised after the plan is printed, to end the program. A BaseException, so that programs do not catch it."""


class PlanExecutor:
    """`model.program.JobExecutor` that prints what would run where, and ends the program."""

    def __init__(
        self,
        shape: ClusterShape,
        parallelism: int,
        lost: Sequence[str],
        command_line: Mapping[str, str],
    ) -> None:
        """`lost`: TaskManagers or hosts; the plan also shows what happens when they are lost."""
        self._shape = shape
        self._parallelism = parallelism
        self._lost = lost
        self._command_line = command_line

    def serialize(self, value: object) -> bytes:
        return serialize(value)

    def submit(self, graph: StreamGraph, program: ProgramSettings) -> JobHandle:
        configured = program.configuration.get(SchedulingOptions.DEFAULT_PARALLELISM.key)
        graph.default_parallelism = int(configured) if configured else self._parallelism
        job_graph = build_job_graph(graph, _PLAN_JOB_ID, serialize)
        settings = job_settings_of(Settings(program.configuration, command_line=self._command_line))
        if self._lost:
            before, after = plan_loss(job_graph, self._shape, self._lost, settings)
            print(
                before.render(),
                render_loss(before, after, self._shape.named(self._lost)),
                sep="\n\n",
            )
        else:
            print(plan_on(job_graph, self._shape, settings).render())
        raise PlanShown


def add_shape(shows: argparse.ArgumentParser) -> None:
    """Add the cluster that `plan` assumes."""
    shows.add_argument("--taskmanagers", type=positive, default=2, help="how many of them (2)")
    shows.add_argument("--slots", type=positive, default=1, help="slots of each TaskManager (1)")
    shows.add_argument(
        "--cluster", action="append", default=[], metavar="HOST=SLOTS,...",
        help="a host with the slots of each of its TaskManagers, for example left=3,3; replaces "
        "--taskmanagers and --slots",
    )  # fmt: skip
    shows.add_argument(
        "--fail", action="append", default=[], metavar="NAME",
        help="a TaskManager, for example tm-1, or a host that is lost: shows what moves where",
    )  # fmt: skip
    shows.add_argument(
        "--parallelism", type=positive, help="parallelism, if the program sets none (all slots)"
    )


def shape_of(options: argparse.Namespace) -> ClusterShape:
    """Return the cluster that the options describe."""
    if options.cluster:
        return parse_shape(options.cluster)
    return alike(options.taskmanagers, options.slots)


def positive(text: str) -> int:
    """Return a number of the command line. Raises ArgumentTypeError: it is below 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text}")
    return value
