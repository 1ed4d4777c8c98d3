"""The autoscaler: from rates, busy time and lag to the parallelism of each vertex, and why it changes or stays."""
