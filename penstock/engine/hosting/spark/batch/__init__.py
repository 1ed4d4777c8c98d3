"""BATCH jobs: each vertex is a stage of Spark, and Spark's shuffle carries the records."""
