"""From the StreamGraph that a program describes to the JobGraph that runs.

Begin reading at `job_graph_builder`. `resolution` decides what the program left open. Depends only on
`penstock.engine.model`.
"""
