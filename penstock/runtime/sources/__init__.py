"""What a source is, and the operator that reads it."""
