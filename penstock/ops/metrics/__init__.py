"""Metrics by Flink's names: scopes, meters, histograms, their form on the wire, and the store of what was reported."""
