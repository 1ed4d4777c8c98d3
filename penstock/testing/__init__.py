"""For tests of programs: a cluster of threads in this process, `env.use_executor(MiniCluster().executor())`."""

from penstock.hosting.executor import MiniCluster

__all__ = ["MiniCluster"]
