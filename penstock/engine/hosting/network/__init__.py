"""Where a record is sent to another TaskManager: connections, frames, and both ends of a remote channel."""
