"""What is deployed next, when its slots suffice, and what each task is told."""
