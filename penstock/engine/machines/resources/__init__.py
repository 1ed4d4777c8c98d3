"""The ResourceManager: which TaskManagers there are, and whose slots they hold."""
