"""The only place with clocks, chance, threads, sockets and Spark."""
