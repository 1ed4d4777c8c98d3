"""Jobs of a MiniCluster with an autoscaler that looks all the time."""

from penstock.engine.hosting.local.minicluster import MiniCluster
from tests.tools.programs.checkpoint_programs import STAGES, sums_to_file
from tests.tools.programs.environments import RESTARTS, minicluster_environment
from tests.tools.programs.rescaled_programs import Generations

QUICK = {
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0 s",
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "0 s",
    "execution.checkpointing.interval": "1 h",
    "heartbeat.interval": "50 ms",
    "job.autoscaler.enabled": "true",
    "job.autoscaler.interval": "100 ms",
    "job.autoscaler.metrics.window": "500 ms",
    "job.autoscaler.stabilization.interval": "0 s",
    "job.autoscaler.scale-down.interval": "0 s",
    "job.autoscaler.vertex.max-parallelism": "3",
}


def slow(stage, value):
    """2 ms for each record, until the gate of the stage opens."""
    STAGES[stage].gate.wait(0.002)
    return value


def submitted(out, source, function, parallelism, settings=None):
    cluster = MiniCluster(parallelism=parallelism, observer=Generations())
    env = minicluster_environment(cluster, RESTARTS | QUICK | (settings or {}))
    sums_to_file(env, out, source, function)
    return env.execute_async("sums")
