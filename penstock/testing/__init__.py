"""For tests of programs: parts of them driven by hand, what a job gives as a list, and a cluster of threads in this process
(`env.use_executor(MiniCluster().executor())`).
"""

from penstock.datastream.connectors.sinks import CollectingSink
from penstock.hosting.minicluster import MiniCluster
from penstock.runtime.elements import Watermark, WatermarkStatus
from penstock.testing.clock import ManualClock
from penstock.testing.harness import StreamHarness, StreamRecord

__all__ = [
    "CollectingSink",
    "ManualClock",
    "MiniCluster",
    "StreamHarness",
    "StreamRecord",
    "Watermark",
    "WatermarkStatus",
]
