"""What begins again after a failure, when, and when to give up."""
