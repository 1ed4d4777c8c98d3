"""From calls of a program to the StreamGraph: nodes, adapters of functions, checks, the plan as JSON."""
