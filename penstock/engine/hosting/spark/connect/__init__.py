"""TaskManagers through Spark Connect: the program is a client, and the driver of the cluster is elsewhere."""
