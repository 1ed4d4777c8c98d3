"""`penstock top`: a live view of jobs and their vertices in a terminal, from answers of the REST API."""
