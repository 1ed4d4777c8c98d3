"""BATCH jobs: stages of Spark, whose shuffle carries the results. `job.py` runs one; `plan.py` says what is where."""
