"""One attempt of a subtask: its thread, how it is built and restored, its part in checkpoints."""
