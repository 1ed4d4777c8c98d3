"""Measures of state: checkpoints, restoring, rescaling, large state."""
