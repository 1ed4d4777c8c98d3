"""The master of a job whose parallelism changes while it runs: one JobMaster after the other, and when the next one begins."""
