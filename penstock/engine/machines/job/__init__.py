"""The JobMaster of a streaming job: what an event changes, what is deployed, what a failure leads to."""
