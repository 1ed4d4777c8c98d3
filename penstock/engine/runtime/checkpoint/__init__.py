"""Checkpoints inside a task: barriers, alignment, data in flight, when to take one and when to commit."""
