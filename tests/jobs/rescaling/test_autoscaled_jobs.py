"""Jobs of a MiniCluster with an autoscaler. Expectations: docs/spec/autoscaler.md, docs/guides/elasticity.md#autoscaler."""

import time
from itertools import count

from penstock.hosting.minicluster import MiniCluster
from penstock.model.graph.rescaling import parallelism_of
from tests.tools.programs.checkpoint_programs import expected_sums, lines_of, running_sum
from tests.tools.programs.checkpoint_programs import _no_watermarks as no_watermarks
from tests.tools.programs.checkpoint_programs import file_sink
from tests.tools.programs.environments import RESTARTS, minicluster_environment
from tests.tools.programs.rescaled_programs import Generations, SharedSplits
from tests.tools.programs.user_functions import first_of
from tests.tools.waiting import wait_until

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


def slow(value):
    time.sleep(0.002)
    return value
