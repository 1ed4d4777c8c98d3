"""State of a job, by subject: attempts, slots, results, status. Only the methods of a part change it."""
