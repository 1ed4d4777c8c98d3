"""The master's half of checkpoints: when one is taken, what becomes of it, and what a restart begins with."""
