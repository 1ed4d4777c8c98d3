"""Sources as the driver sees them: which splits go back to whom, and how far aligned sources may run."""
