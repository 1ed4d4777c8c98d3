"""The books of a job, by subject: attempts, slots, results, status. Only a book's own methods change it."""
