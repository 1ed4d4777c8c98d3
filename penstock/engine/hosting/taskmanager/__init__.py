"""A TaskManager's process: the shell of its control plane, its supervisor in Spark's worker, its watchdogs."""
