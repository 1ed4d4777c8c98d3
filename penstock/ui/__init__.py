"""What people look at: the command line."""
