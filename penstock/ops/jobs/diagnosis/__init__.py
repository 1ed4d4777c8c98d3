"""What is wrong with a running job: who limits it, what holds its watermark and its checkpoints, which subtasks are skewed."""
