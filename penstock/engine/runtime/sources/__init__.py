"""What a source is, the operator that reads it, and the usual base of readers."""
