"""From the StreamGraph that a program describes to the JobGraph that runs.

`job_graph_builder` is the way in. Each step has a file: `resolution` settles what the program left open,
`chaining` says which operators share a task, `overtaking` where barriers may overtake records,
`serialization_check` which operator cannot be shipped. Knows nothing but the model.
"""
