"""Where a slot is chosen: which subtasks share one, and which slot serves which request."""
