"""From the StreamGraph that a program describes to the JobGraph that runs.

Begin reading at `job_graph_builder`. Each step has a module: `resolution` decides what the program left open,
`chaining` decides which operators share a task, `overtaking` decides where barriers may overtake records, and
`serialization_check` finds the operator that cannot be pickled. Depends only on `penstock.model`.
"""
