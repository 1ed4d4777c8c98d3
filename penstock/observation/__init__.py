"""What is known of jobs while they run: events folded into immutable snapshots, and the answers that are made of them. Pure."""
