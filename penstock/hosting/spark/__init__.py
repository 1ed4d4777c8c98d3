"""Where Spark is asked: its session, its sizes and slots, the tasks that become TaskManagers, and what stands against them."""
