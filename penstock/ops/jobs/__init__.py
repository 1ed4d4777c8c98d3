"""The events of a job, folded into snapshots that nobody changes."""
