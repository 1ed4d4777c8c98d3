"""What a program becomes while its methods are called: nodes, adapters of functions, checks, the plan as JSON."""
