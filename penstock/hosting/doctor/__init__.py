"""Looks at a Spark application before a job does: what it allows, what is wrong with it, and which setting helps."""
