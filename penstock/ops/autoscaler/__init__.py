"""Gives running jobs more or fewer subtasks: measures a job, asks the rules, and asks the job for what they decide."""
