"""For tests of programs: operators driven by hand, results as a list, a cluster of threads in this process.

For connectors of one's own there is a kit that finds out what a source or sink guarantees.
A program runs on such a cluster with `env.use_executor(MiniCluster().executor())`.
"""

from penstock.connectors.sinks import CollectingSink
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.runtime.elements import Watermark, WatermarkStatus
from penstock.testing.clock import ManualClock
from penstock.testing.conformance import Conformance, Finding, check_sink, check_source
from penstock.testing.harness import StreamHarness, StreamRecord

__all__ = [
    "CollectingSink",
    "Conformance",
    "Finding",
    "ManualClock",
    "MiniCluster",
    "StreamHarness",
    "StreamRecord",
    "Watermark",
    "WatermarkStatus",
    "check_sink",
    "check_source",
]
