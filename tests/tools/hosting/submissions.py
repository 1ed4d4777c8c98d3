"""Submissions made by hand, of jobs whose coordinators are pickled as a test wants."""

import pickle
import sys

from penstock.common import WatermarkStrategy
from penstock.connectors.datagen import NumberSequenceSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.program.settings import HOST_DEFAULTS
from penstock.engine.hosting.program.submitted_jobs import submitted_job
from penstock.engine.model.config import Settings


def coordinated_job(job_id, modules, coordinated):
    """The bytes of a job without an end. `coordinated`: a pickle that the session opens, of its coordinators."""
    job = _endless(job_id)
    plain = pickle.dumps((job.graph, job.program, modules), protocol=5)
    packed = pickle.dumps((plain, coordinated, sys.version_info[:2], None), protocol=5)
    return pickle.dumps((packed, None, False), protocol=5)


def coordinators_of_the_job():
    """What makes them, as an expression of Python."""
    job = _endless("0" * 32)
    return f"__import__('pickle').loads({pickle.dumps((job.coordinated, job.classes))!r})"


def _endless(job_id):
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    source = NumberSequenceSource(0, 10**12)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    numbers.filter(_nothing).print()
    graph = env.plumbing.stream_graph("by hand")
    settings = Settings({"pipeline.fixed-job-id": job_id}, defaults=HOST_DEFAULTS)
    _, job = submitted_job(MiniCluster(), graph, env.plumbing.settings, settings)
    return job


def _nothing(_number):
    return False
