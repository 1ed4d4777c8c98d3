"""From a program to a running job: checks, chooses and starts what runs it, and talks to the console."""
