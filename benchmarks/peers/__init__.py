"""The same workloads in other systems: programs, their environments, data, and one command that runs all beside ours."""

from benchmarks.peers.programs.checks import WORKLOADS

SECTION_OF = {workload: f"peers: {workload}" for workload in WORKLOADS}
"""Of RESULTS.md."""
