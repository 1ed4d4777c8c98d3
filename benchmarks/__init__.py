"""Benchmarks: what a job on two Spark-hosted TaskManagers does, each beside its floor."""
