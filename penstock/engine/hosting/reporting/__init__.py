"""Metrics and logs of processes, and the log lines of state transitions."""
