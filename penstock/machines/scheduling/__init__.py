"""What is deployed next, and which slots that needs."""
