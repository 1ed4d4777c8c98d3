"""What a program would get of a cluster, told before it runs: `penstock plan`."""
