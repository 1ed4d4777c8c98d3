"""Answers of a true Flink 2.3.0 cluster, recorded from a job of two vertices that failed once, and how ours are compared with them.

Stack traces and long lists are cut. `{job}`, `{vertex0}`, `{vertex1}`, `{tm}` and `{checkpoint}` stand for ids.
"""
