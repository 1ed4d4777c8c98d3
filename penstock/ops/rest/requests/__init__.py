"""What each path of the REST API does: answers from snapshots, or asks a job to do something."""
