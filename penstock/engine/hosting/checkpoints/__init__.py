"""Where a checkpoint is stored and read: files of state, metadata, and how both are checked before use."""
