"""The MiniCluster: JobManager and TaskManagers in threads of one process, for tests and debugging."""
