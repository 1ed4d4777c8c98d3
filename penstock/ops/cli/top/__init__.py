"""`penstock top`: a live view of jobs and their vertices in a terminal, from what REST tells."""
