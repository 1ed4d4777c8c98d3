"""The Dispatcher of a session: which submitted jobs are known, what each is doing, and what is left to clean up."""
