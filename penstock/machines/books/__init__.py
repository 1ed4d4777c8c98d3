"""What a job has written down, by subject: each book is changed by its own methods only."""
