"""The JobManager of one job: one loop that feeds events to the machines and carries their effects out."""
