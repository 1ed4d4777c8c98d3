"""Lines of logs: their form as text and as JSON, and repeated ones made one."""
