"""Where watermarks come from, and how those of several channels make one."""
