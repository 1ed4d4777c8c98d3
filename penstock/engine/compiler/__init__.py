"""From the StreamGraph that a program describes to the JobGraph that runs.

Begin reading at `job_graph_builder`. Each step has a module: `resolution` decides what the program left open,
`chaining` decides which operators share a task, and `overtaking` decides where barriers may overtake records.
Depends only on `penstock.engine.model`.
"""
