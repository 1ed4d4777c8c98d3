"""The slots of one job: which subtasks share one, which slot serves which request."""
