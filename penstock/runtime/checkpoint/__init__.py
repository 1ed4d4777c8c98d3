"""Checkpoints inside a task: barriers, alignment, what is in flight."""
