"""Who may act: leadership of a driver, and signs of life of TaskManagers."""
