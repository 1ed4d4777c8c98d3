"""`penstock plan`: prints what would run where, instead of running a program's job."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.engine.compiler.job_graph_builder import build_job_graph
from penstock.engine.hosting.jobmanager.handle import JobHandle
from penstock.engine.hosting.program.function_strategies import note_function_strategies, report
from penstock.engine.hosting.shipping.pickling import serialize_program
from penstock.engine.machines.job_state.job_settings import job_settings_of
from penstock.engine.machines.planning.plan import ClusterShape, alike, parse_shape, render_loss
from penstock.engine.machines.planning.planner import plan_loss, plan_on
from penstock.engine.model.config import Settings
from penstock.engine.model.graph.stream_graph import StreamGraph
from penstock.engine.model.ids import JobId
from penstock.engine.model.options.scheduling import SchedulingOptions
from penstock.engine.model.program import ProgramSettings
from penstock.ops.cli.remote.texts import show

_PLAN_JOB_ID: Final = JobId("0" * 32)


class PlanShown(BaseException):
    """Raised after the plan is printed, to end the program. A BaseException, so that programs do not catch it."""


class PlanExecutor:
    """`engine.model.program.JobExecutor` that prints what would run where, and ends the program."""

    def __init__(
        self,
        shape: ClusterShape,
        parallelism: int,
        lost: Sequence[str],
        command_line: Mapping[str, str],
        *,
        shows_functions: bool = False,
    ) -> None:
        """`lost`: TaskManagers or hosts; the plan also shows what happens when they are lost. `shows_functions`: show how row functions
        will run instead.
        """
        self._shows_functions = shows_functions
        self._shape = shape
        self._parallelism = parallelism
        self._lost = lost
        self._command_line = command_line

    def options_of(self, program: ProgramSettings) -> Mapping[str, str]:
        """See `engine.model.program.JobExecutor`."""
        return Settings(program.configuration, command_line=self._command_line).as_text()

    def submit(self, graph: StreamGraph, program: ProgramSettings) -> JobHandle:
        configured = self.options_of(program).get(SchedulingOptions.DEFAULT_PARALLELISM.key)
        graph.default_parallelism = int(configured) if configured else self._parallelism
        job_graph = build_job_graph(graph, _PLAN_JOB_ID, serialize_program)
        if self._shows_functions:
            note_function_strategies(graph, job_graph)
            show(report(job_graph))
            raise PlanShown
        settings = job_settings_of(Settings(program.configuration, command_line=self._command_line))
        if self._lost:
            before, after = plan_loss(job_graph, self._shape, self._lost, settings)
            loss = render_loss(before, after, self._shape.named(self._lost))
            show(f"{before.render()}\n\n{loss}")
        else:
            show(plan_on(job_graph, self._shape, settings).render())
        raise PlanShown


def shape_of(options: argparse.Namespace) -> ClusterShape:
    """Return the cluster that the options describe."""
    if options.cluster:
        return parse_shape(options.cluster)
    return alike(options.taskmanagers, options.slots)
