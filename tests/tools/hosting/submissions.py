"""Submissions made by hand, of jobs whose coordinators are pickled as a test wants."""

import pickle

from penstock.datastream import StreamExecutionEnvironment
from penstock.hosting.minicluster import MiniCluster
from penstock.hosting.program.settings import HOST_DEFAULTS
from penstock.hosting.program.submitted_jobs import submitted_job
from penstock.model.config import Settings


def coordinated_job(job_id, modules, coordinated):
    """The bytes of a job without an end. `coordinated`: a pickle that the session opens; here it gives nothing to coordinate."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1]).print()
    graph = env.plumbing.stream_graph("by hand")
    settings = Settings({"pipeline.fixed-job-id": job_id}, defaults=HOST_DEFAULTS)
    _, job = submitted_job(MiniCluster(), graph, env.plumbing.settings, settings)
    plain = pickle.dumps((job.graph, job.program, modules), protocol=5)
    return pickle.dumps((pickle.dumps((plain, coordinated), protocol=5), None), protocol=5)
