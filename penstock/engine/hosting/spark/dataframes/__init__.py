"""Spark's DataFrames as sources and as results of jobs, in both runtime modes."""
