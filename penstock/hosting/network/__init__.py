"""Records between TaskManagers: connections, frames, and both ends of a remote channel."""
