"""What happened to a job, as spans with a begin and an end, and as events."""
